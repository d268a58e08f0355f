use proptest::prelude::*;

use super::*;

/// `{"state_dict": {...}, "optimizer": {...}, "epoch": 3, "args": Namespace(a=1)}`, saved by torch 2.15.
const TRAINING: &[u8] = include_bytes!("fixtures/training.pt");
/// A state dict in halves.
const PLAIN: &[u8] = include_bytes!("fixtures/plain.pt");

#[test]
fn the_models_tensors_are_distinguished_from_the_optimizers() {
    let checkpoint = read(&mut &*TRAINING).unwrap();
    let tensors: Vec<String> = checkpoint
        .tensors
        .iter()
        .map(|tensor| format!("{} {} {:?} {}", tensor.name, tensor.dtype, tensor.shape, tensor.bytes))
        .collect();
    assert_eq!(
        tensors,
        [
            "0.weight float32 [4, 3] 48",
            "0.bias float32 [4] 16",
            "1.weight float32 [4] 16",
            "1.bias float32 [4] 16",
            "half bfloat16 [2, 5] 20",
        ]
    );
    assert_eq!(checkpoint.shared, 1);
    assert_eq!(checkpoint.extras, ["optimizer", "args"]);
}

#[test]
fn a_plain_state_dict_is_read_whole() {
    let checkpoint = read(&mut &*PLAIN).unwrap();
    let bytes: u64 = checkpoint.tensors.iter().map(|tensor| tensor.bytes).sum();
    assert_eq!((checkpoint.tensors.len(), bytes, checkpoint.extras.len()), (4, 2 * (12 + 4 + 4 + 4), 0));
}

#[test]
fn a_file_cut_anywhere_says_where() {
    for length in 0..PLAIN.len() {
        let error = read(&mut &PLAIN[..length]).unwrap_err().to_string();
        assert!(error.contains("byte"), "{length}: {error}");
    }
}

#[test]
fn nothing_in_a_pickle_is_called() {
    // `os.system("...")`: the call makes nothing, and the reader goes on.
    let pickle = b"\x80\x02}(X\x01\x00\x00\x00acposix\nsystem\nX\x04\x00\x00\x00exit\x85Ru.";
    let (root, heap) = pickle::read(pickle, 0).unwrap();
    assert_eq!(heap.entries(&root), [(Value::Text("a".into()), Value::Nothing)]);
    for (pickle, words) in [
        (&b"\x80\x02u."[..], "no mark"),
        (b"\x80\x02r\xff\xff\xff\xff.", "memo"),
        (b"\x80\x02\x85.", "a tuple of more values"),
        (b"\x80\x02\xff", "opcode 0xff"),
        (b"\x80\x02X\xff\xff\xff\xff", "cut short"),
        (b".", "a value where there is none"),
    ] {
        let error = pickle::read(pickle, 7).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

proptest! {
    #[test]
    fn any_pickle_is_answered(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok((root, heap)) = pickle::read(&bytes, 0) {
            gather(&root, &heap);
        }
    }

    #[test]
    fn a_damaged_archive_is_answered(at in 0..PLAIN.len(), byte in any::<u8>()) {
        let mut file = PLAIN.to_vec();
        file[at] = byte;
        let _ = read(&mut file.as_slice());
    }
}

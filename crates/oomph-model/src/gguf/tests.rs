use proptest::prelude::*;

use super::*;

/// Writes GGUF files for the tests.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    big: bool,
    narrow: bool,
}

impl Writer {
    fn new(version: u32, big: bool, tensors: u64, settings: u64) -> Self {
        let mut writer = Self { bytes: b"GGUF".to_vec(), big, narrow: version == 1 };
        writer.u32(version);
        writer.size(tensors);
        writer.size(settings);
        writer
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }

    fn size(&mut self, value: u64) -> &mut Self {
        if self.narrow { self.u32(value as u32) } else { self.u64(value) }
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.size(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }

    fn tensor(&mut self, name: &str, shape: &[u64], kind: u32, offset: u64) -> &mut Self {
        self.text(name).u32(shape.len() as u32);
        for &side in shape {
            self.size(side);
        }
        self.u32(kind).u64(offset)
    }
}

fn small(version: u32, big: bool) -> Vec<u8> {
    let mut writer = Writer::new(version, big, 3, 3);
    writer.text("general.architecture").u32(8).text("llama");
    writer.text("llama.block_count").u32(4).u32(32);
    writer.text("tokenizer.ggml.scores").u32(9).u32(6).size(5000);
    writer.bytes.extend(std::iter::repeat_n(0, 5000 * 4));
    writer.tensor("token_embd.weight", &[256, 4], 12, 0);
    writer.tensor("strange.weight", &[64], 99, 576);
    writer.tensor("output_norm.weight", &[256], 0, 640);
    let data = writer.bytes.len().next_multiple_of(32) + 640 + 1024;
    writer.bytes.resize(data, 0);
    writer.bytes
}

#[test]
fn every_version_and_byte_order_is_read() {
    for (version, big) in [(1, false), (2, false), (3, false), (3, true)] {
        let header = read(&mut small(version, big).as_slice()).unwrap();
        assert_eq!(header.version, version);
        assert_eq!(header.of_architecture("block_count").and_then(Value::as_u64), Some(32));
        assert_eq!(header.setting("tokenizer.ggml.scores").and_then(Value::length), Some(5000));
        let sizes: Vec<(&str, u64)> =
            header.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.bytes)).collect();
        // 1,024 weights in 4 blocks of 144 bytes; an unknown type up to the next tensor; 256 floats.
        assert_eq!(sizes, [("token_embd.weight", 576), ("strange.weight", 64), ("output_norm.weight", 1024)]);
    }
}

#[test]
fn a_file_cut_anywhere_in_its_header_says_where() {
    let file = small(3, false);
    let header = read(&mut file.as_slice()).unwrap();
    for length in 0..header.data_offset as usize - 31 {
        let error = read(&mut &file[..length]).unwrap_err().to_string();
        assert!(error.contains("byte"), "{length}: {error}");
    }
}

#[test]
fn lies_are_refused() {
    let mut many = Writer::new(3, false, u64::MAX, 0).bytes;
    many.resize(100, 0);
    let mut deep = Writer::new(3, false, 0, 1);
    deep.text("a");
    deep.u32(9);
    for _ in 0..10 {
        deep.u32(9).u64(1);
    }
    deep.bytes.resize(400, 0);
    let mut odd = Writer::new(3, false, 1, 0);
    odd.tensor("a", &[100], 12, 0);
    for (bytes, words) in [
        (many, "18446744073709551615 tensors"),
        (deep.bytes, "a value of type 9"),
        (odd.bytes, "in blocks of 256"),
        (b"GGML____".to_vec(), "no \"GGUF\""),
        (b"GGUF\x09\0\0\0".to_vec(), "version 9"),
    ] {
        let error = read(&mut bytes.as_slice()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn bits_per_weight_are_the_published_ones() {
    // Bits per weight that llama.cpp prints for its types.
    for (name, bits) in
        [("q4_K", 4.5), ("q5_K", 5.5), ("q6_K", 6.5625), ("q8_0", 8.5), ("q4_0", 4.5), ("iq2_xxs", 2.0625)]
    {
        let kind = TYPES.iter().find(|kind| kind.name == name).unwrap();
        assert_eq!(kind.block_bytes as f64 * 8.0 / kind.block as f64, bits, "{name}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tail);
        let _ = read(&mut bytes.as_slice());
    }
}

//! Instructions, their arguments and their offsets, over sources of any shape.

use std::io::{self, Read};

use oomph_pickle::{Code, Decoder, Error, Op, Problem};
use proptest::prelude::*;

/// Every instruction of a pickle with its offset; texts, bytes and lines are passed over.
fn decode(source: impl Read) -> Result<Vec<(u64, Op)>, Error> {
    let mut decoder = Decoder::new(source);
    let mut ops = Vec::new();
    loop {
        let instruction = decoder.instruction()?;
        ops.push((instruction.at, instruction.op));
        match instruction.op {
            Op::Stop | Op::Unknown => return Ok(ops),
            Op::Text(length) | Op::Bytes(length) => decoder.skip(length)?,
            Op::NumberLine | Op::TextLine => drop(decoder.line(usize::MAX)?),
            Op::Code(Code::Global) => {
                decoder.line(usize::MAX)?;
                decoder.line(usize::MAX)?;
            }
            _ => {}
        }
    }
}

/// A source that gives one byte at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(1);
        self.0.read(&mut buffer[..count])
    }
}

fn op_of(bytes: &[u8]) -> Op {
    decode(&[bytes, b"."].concat()[..]).unwrap()[0].1
}

#[test]
fn opcodes_that_differ_in_their_argument_are_one_instruction() {
    for (bytes, op) in [
        (&b"K\xff"[..], Op::Int(255)),
        (b"M\xff\xff", Op::Int(65535)),
        (b"J\xff\xff\xff\xff", Op::Int(-1)),
        (b"\x8a\x00", Op::Int(0)),
        (b"\x8a\x01\x80", Op::Int(-128)),
        (b"\x8b\x02\x00\x00\x00\x00\x01", Op::Int(256)),
        (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00", Op::Unsigned(1 << 63)),
        (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\xff", Op::WideInt),
        (b"\x8a\x0a0123456789", Op::WideInt),
        (b"G\x3f\xf8\x00\x00\x00\x00\x00\x00", Op::Float(1.5)),
        (b"\x8c\x02ab", Op::Text(2)),
        (b"X\x02\x00\x00\x00ab", Op::Text(2)),
        (b"\x8d\x02\x00\x00\x00\x00\x00\x00\x00ab", Op::Text(2)),
        (b"C\x01a", Op::Bytes(1)),
        (b"\x96\x01\x00\x00\x00\x00\x00\x00\x00a", Op::Bytes(1)),
        (b"I12\n", Op::NumberLine),
        (b"S'a'\n", Op::TextLine),
        (b"h\x03", Op::Get(3)),
        (b"j\x03\x00\x00\x01", Op::Get(0x0100_0003)),
        (b"r\x03\x00\x00\x01", Op::Put(0x0100_0003)),
        (b"\x86", Op::TupleOf(2)),
        (b"cos\nsystem\n", Op::Code(Code::Global)),
        (b"R", Op::Code(Code::Reduce)),
        (b"\xff", Op::Unknown),
    ] {
        assert_eq!(op_of(bytes), op, "{bytes:?}");
    }
    assert_eq!(Code::NewObjEx.name(), "NEWOBJ_EX");
}

#[test]
fn what_is_wrong_has_its_place() {
    let fault = |bytes: &[u8]| decode(bytes).unwrap_err();
    assert!(matches!(fault(b"\x80\x04K"), Error { offset: 3, problem: Problem::Cut }));
    assert!(matches!(fault(b"NN\x8b\xff\xff\xff\xff."), Error { offset: 2, problem: Problem::NegativeLength }));
    // A length that no file explains takes no memory: the bytes are not there.
    assert!(matches!(fault(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc"), Error { offset: 12, problem: Problem::Cut }));
    assert!(matches!(fault(b"I12"), Error { offset: 3, problem: Problem::Cut }));
    assert_eq!(fault(b"K").to_string(), "byte 1: the pickle is cut short");

    let mut decoder = Decoder::new(&b"twelve\n."[..]);
    assert!(matches!(decoder.line(5), Err(Error { problem: Problem::LongLine(5), .. })));
    assert_eq!(decoder.line(6).unwrap(), b"twelve");
    assert_eq!(decoder.instruction().unwrap().op, Op::Stop);
}

#[test]
fn a_run_of_gets_ends_with_what_cannot_be_used() {
    let mut decoder = Decoder::new(&b"h\x01j\x02\x00\x00\x00h\x03h\x04N......."[..]);
    assert_eq!(decoder.instruction().unwrap().op, Op::Get(1));
    let mut seen = Vec::new();
    decoder.gets(|index| {
        seen.push(index);
        index < 3
    });
    // The last one was not used, and comes again.
    assert_eq!(seen, [2, 3]);
    assert_eq!((decoder.offset(), decoder.instruction().unwrap().op), (7, Op::Get(3)));
    decoder.gets(|_| true);
    assert_eq!(decoder.instruction().unwrap().op, Op::Nothing);
}

#[test]
fn a_long_text_crosses_buffers() {
    let text = "0123456789".repeat(100_000);
    let length = text.len() as u64;
    let pickle = [b"X", &(length as u32).to_le_bytes()[..], text.as_bytes(), b"."].concat();
    let mut decoder = Decoder::new(Trickle(&pickle));
    assert_eq!(decoder.instruction().unwrap().op, Op::Text(length));
    assert!(decoder.payload(length, |bytes| bytes == text.as_bytes()).unwrap());
    assert_eq!(decoder.instruction().unwrap().op, Op::Stop);
}

proptest! {
    #[test]
    fn how_the_source_gives_its_bytes_changes_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let whole = decode(&bytes[..]).map_err(|error| error.to_string());
        let trickled = decode(Trickle(&bytes)).map_err(|error| error.to_string());
        // A number that is not one differs from itself.
        prop_assert_eq!(format!("{whole:?}"), format!("{trickled:?}"));
    }
}

//! Decodes bytes into instructions.

use std::io::Read;

use crate::error::{Error, Problem};
use crate::input::Input;
use crate::instruction::{Code, Instruction, Op};
use crate::opcode as op;

/// Decodes one pickle. The source may be a pipe: it is read through a buffer, in order, and only once.
pub struct Decoder<R> {
    input: Input<R>,
}

impl<R: Read> Decoder<R> {
    /// A decoder of the pickle that starts at the source's next byte.
    pub fn new(source: R) -> Self {
        Self { input: Input::new(source) }
    }

    /// The offset of the next byte in the pickle.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next instruction. Bytes and lines that belong to the one before must have been taken or passed over.
    ///
    /// # Errors
    /// When the pickle is cut short, its source cannot be read, or an integer has a negative number of bytes.
    #[inline]
    pub fn instruction(&mut self) -> Result<Instruction, Error> {
        let at = self.input.offset();
        let [opcode] = self.input.bytes()?;
        Ok(Instruction { at, opcode, op: self.op(opcode, at)? })
    }

    /// Hands the numbers of a run of [`Op::Get`] to `take`, which says whether it could use each; the run ends with the
    /// one that it could not. The run may end early, so that a `Get` can follow.
    ///
    /// Where most instructions are these, as in a list of lists of shared values, this is several times faster than one
    /// instruction at a time.
    #[inline]
    pub fn gets(&mut self, mut take: impl FnMut(u32) -> bool) {
        let bytes = self.input.buffered();
        let mut done = 0;
        // Five bytes are the longest of the two; the last few of a buffer go the ordinary way.
        while let Some(&[opcode, a, b, c, d]) = bytes.get(done..).and_then(|rest| rest.first_chunk::<5>()) {
            let (index, length) = match opcode {
                op::BINGET => (u32::from(a), 2),
                op::LONG_BINGET => (u32::from_le_bytes([a, b, c, d]), 5),
                _ => break,
            };
            if !take(index) {
                break;
            }
            done += length;
        }
        self.input.consume(done);
    }

    /// Hands the next `length` bytes to `take`.
    ///
    /// # Errors
    /// When they are not there.
    #[inline]
    pub fn payload<T>(&mut self, length: u64, take: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        self.input.with(length, take)
    }

    /// Passes over the next `length` bytes.
    ///
    /// # Errors
    /// When they are not there.
    pub fn skip(&mut self, length: u64) -> Result<(), Error> {
        self.input.skip(length)
    }

    /// The bytes up to the next line feed, without it.
    ///
    /// # Errors
    /// When they are more than `most`, or no line feed comes.
    pub fn line(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        self.input.line(most)
    }

    #[inline]
    fn op(&mut self, opcode: u8, at: u64) -> Result<Op, Error> {
        Ok(match opcode {
            op::MARK => Op::Mark,
            op::STOP => Op::Stop,
            op::POP => Op::Pop,
            op::POP_MARK => Op::PopMark,
            op::DUP => Op::Dup,
            op::NONE => Op::Nothing,
            op::NEWTRUE => Op::Bool(true),
            op::NEWFALSE => Op::Bool(false),
            op::BININT => Op::Int(i32::from_le_bytes(self.input.bytes()?).into()),
            op::BININT1 => Op::Int(self.byte()?.into()),
            op::BININT2 => Op::Int(u16::from_le_bytes(self.input.bytes()?).into()),
            op::LONG1 => {
                let length = self.byte()?;
                self.integer(length.into())?
            }
            op::LONG4 => {
                let length = i32::from_le_bytes(self.input.bytes()?);
                let length = length.try_into().map_err(|_| Error { offset: at, problem: Problem::NegativeLength })?;
                self.integer(length)?
            }
            op::BINFLOAT => Op::Float(f64::from_be_bytes(self.input.bytes()?)),
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => Op::Text(self.byte()?.into()),
            op::BINUNICODE | op::BINSTRING => Op::Text(self.four()?.into()),
            op::BINUNICODE8 => Op::Text(self.eight()?),
            op::SHORT_BINBYTES => Op::Bytes(self.byte()?.into()),
            op::BINBYTES => Op::Bytes(self.four()?.into()),
            op::BINBYTES8 | op::BYTEARRAY8 => Op::Bytes(self.eight()?),
            op::INT | op::LONG | op::FLOAT => Op::NumberLine,
            op::STRING | op::UNICODE => Op::TextLine,
            op::EMPTY_TUPLE => Op::EmptyTuple,
            op::EMPTY_LIST => Op::EmptyList,
            op::EMPTY_DICT => Op::EmptyDict,
            op::EMPTY_SET => Op::EmptySet,
            op::TUPLE => Op::Tuple,
            op::TUPLE1 => Op::TupleOf(1),
            op::TUPLE2 => Op::TupleOf(2),
            op::TUPLE3 => Op::TupleOf(3),
            op::LIST => Op::List,
            op::DICT => Op::Dict,
            op::FROZENSET => Op::FrozenSet,
            op::APPEND => Op::Append,
            op::APPENDS => Op::Appends,
            op::ADDITEMS => Op::AddItems,
            op::SETITEM => Op::SetItem,
            op::SETITEMS => Op::SetItems,
            op::BINGET => Op::Get(self.byte()?.into()),
            op::LONG_BINGET => Op::Get(self.four()?),
            op::BINPUT => Op::Put(self.byte()?.into()),
            op::LONG_BINPUT => Op::Put(self.four()?),
            op::MEMOIZE => Op::Memoize,
            op::PROTO => Op::Protocol(self.byte()?),
            op::FRAME => Op::Frame(self.eight()?),
            _ => Code::of(opcode).map_or(Op::Unknown, Op::Code),
        })
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Error> {
        self.input.bytes().map(|[byte]| byte)
    }

    #[inline]
    fn four(&mut self) -> Result<u32, Error> {
        self.input.bytes().map(u32::from_le_bytes)
    }

    #[inline]
    fn eight(&mut self) -> Result<u64, Error> {
        self.input.bytes().map(u64::from_le_bytes)
    }

    /// An integer of any length, little end first, in two's complement.
    fn integer(&mut self, length: u64) -> Result<Op, Error> {
        if length > 9 {
            return self.skip(length).map(|()| Op::WideInt);
        }
        self.input.with(length, |bytes| {
            let fill = if bytes.last().is_some_and(|top| top & 0x80 != 0) { 0xff } else { 0 };
            let mut low = [fill; 8];
            let kept = bytes.len().min(8);
            low[..kept].copy_from_slice(&bytes[..kept]);
            match bytes.get(8) {
                // An address above 2^63 has a ninth byte for its sign.
                Some(0) => Op::Unsigned(u64::from_le_bytes(low)),
                Some(_) => Op::WideInt,
                None => Op::Int(i64::from_le_bytes(low)),
            }
        })
    }
}

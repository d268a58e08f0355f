//! What a pickle's instructions ask for.

use crate::opcode as op;

/// One instruction of a pickle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instruction {
    /// The offset of its opcode in the pickle, in bytes.
    pub at: u64,
    /// The byte that names it.
    pub opcode: u8,
    /// What it asks for.
    pub op: Op,
}

/// What an instruction asks a machine with a stack, marks and a memo to do.
///
/// Opcodes that only differ in how they write their argument are one `Op`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Ends the pickle; the topmost value is what it holds.
    Stop,
    /// Marks a place in the stack.
    Mark,
    /// Drops the topmost value.
    Pop,
    /// Drops what lies above the innermost mark, and the mark.
    PopMark,
    /// Pushes the topmost value a second time.
    Dup,

    /// Pushes `None`.
    Nothing,
    /// Pushes a truth value.
    Bool(bool),
    /// Pushes an integer.
    Int(i64),
    /// Pushes an integer that was written with a ninth byte for its sign, as Python writes those above `i64::MAX`.
    Unsigned(u64),
    /// Pushes an integer that is neither of the two above. Its digits were passed over.
    WideInt,
    /// Pushes a fraction.
    Float(f64),
    /// Pushes a text of so many bytes. They come next: take them with [`Decoder::payload`](crate::Decoder::payload) or
    /// pass over them with [`Decoder::skip`](crate::Decoder::skip).
    Text(u64),
    /// Pushes so many bytes, which come next as for [`Text`](Self::Text).
    Bytes(u64),
    /// Pushes the number that is written in decimal digits on the next [`line`](crate::Decoder::line).
    NumberLine,
    /// Pushes the text on the next [`line`](crate::Decoder::line), perhaps in quotes.
    TextLine,

    /// Pushes `()`.
    EmptyTuple,
    /// Pushes `[]`.
    EmptyList,
    /// Pushes `{}`.
    EmptyDict,
    /// Pushes `set()`.
    EmptySet,
    /// Makes one tuple of what lies above the innermost mark.
    Tuple,
    /// Makes one tuple of so many values.
    TupleOf(usize),
    /// Makes one list of what lies above the innermost mark.
    List,
    /// Makes one dict of the keys and values above the innermost mark.
    Dict,
    /// Makes one frozen set of what lies above the innermost mark.
    FrozenSet,
    /// Appends the topmost value to the list below it.
    Append,
    /// Appends what lies above the innermost mark to the list below it.
    Appends,
    /// Adds what lies above the innermost mark to the set below it.
    AddItems,
    /// Puts a key and its value into the dict below them.
    SetItem,
    /// Puts the keys and values above the innermost mark into the dict below it.
    SetItems,

    /// Pushes an entry of the memo.
    Get(u32),
    /// Remembers the topmost value under a number.
    Put(u32),
    /// Remembers the topmost value under the next number.
    Memoize,

    /// The protocol's version.
    Protocol(u8),
    /// The length of the next frame in bytes: a hint for readers without a buffer, which changes nothing here.
    Frame(u64),

    /// Makes an object or calls a function when Python reads it.
    Code(Code),
    /// An opcode that is not known here. The length of its argument is unknown too, so decoding cannot go on.
    Unknown,
}

/// The instructions by which Python runs code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Pushes a class or a function: its module and its name are the next two lines.
    Global,
    /// Makes an object of a class, named as in [`Global`](Self::Global), with what lies above the innermost mark.
    Inst,
    /// Pushes the class or function whose module and name are the two topmost values.
    StackGlobal,
    /// Calls the function below the topmost value, which is a tuple of arguments.
    Reduce,
    /// Gives the object below the topmost value that value as its state.
    Build,
    /// Makes an object of the class above the innermost mark, with the values above it.
    Obj,
    /// Makes an object of the class below the topmost value, which is a tuple of arguments.
    NewObj,
    /// As [`NewObj`](Self::NewObj), with a dict of named arguments on top.
    NewObjEx,
    /// Pushes an entry of a registry of extensions; one byte that numbers it comes next.
    Ext1,
    /// As [`Ext1`](Self::Ext1), with two bytes.
    Ext2,
    /// As [`Ext1`](Self::Ext1), with four bytes.
    Ext4,
    /// Pushes what the reading program knows under the name on the next line.
    PersId,
    /// Pushes what the reading program knows under the topmost value.
    BinPersId,
}

impl Code {
    pub(crate) fn of(opcode: u8) -> Option<Self> {
        Some(match opcode {
            op::GLOBAL => Self::Global,
            op::INST => Self::Inst,
            op::STACK_GLOBAL => Self::StackGlobal,
            op::REDUCE => Self::Reduce,
            op::BUILD => Self::Build,
            op::OBJ => Self::Obj,
            op::NEWOBJ => Self::NewObj,
            op::NEWOBJ_EX => Self::NewObjEx,
            op::EXT1 => Self::Ext1,
            op::EXT2 => Self::Ext2,
            op::EXT4 => Self::Ext4,
            op::PERSID => Self::PersId,
            op::BINPERSID => Self::BinPersId,
            _ => return None,
        })
    }

    /// What Python's `pickletools` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Global => "GLOBAL",
            Self::Inst => "INST",
            Self::StackGlobal => "STACK_GLOBAL",
            Self::Reduce => "REDUCE",
            Self::Build => "BUILD",
            Self::Obj => "OBJ",
            Self::NewObj => "NEWOBJ",
            Self::NewObjEx => "NEWOBJ_EX",
            Self::Ext1 => "EXT1",
            Self::Ext2 => "EXT2",
            Self::Ext4 => "EXT4",
            Self::PersId => "PERSID",
            Self::BinPersId => "BINPERSID",
        }
    }
}

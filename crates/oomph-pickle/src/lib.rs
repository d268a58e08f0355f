//! Decodes the instructions of a Python pickle from a stream, and never executes them.
//!
//! A pickle is a program for a machine with a stack and a memo. [`Decoder`] gives its instructions one after the other,
//! each with its argument and its offset; the caller decides what to keep and what to refuse. Nothing is allocated per
//! instruction, and a length in the file costs no memory before its bytes arrive.
//!
//! ```
//! use oomph_pickle::{Decoder, Op};
//!
//! // What Python writes for `[7, "seven"]`.
//! let pickle = b"\x80\x04](K\x07\x8c\x05sevene.";
//! let mut decoder = Decoder::new(&pickle[..]);
//! let mut text = String::new();
//! let mut numbers = Vec::new();
//! loop {
//!     match decoder.instruction()?.op {
//!         Op::Stop => break,
//!         Op::Int(number) => numbers.push(number),
//!         // The bytes of a text follow its instruction.
//!         Op::Text(length) => decoder.payload(length, |bytes| text = String::from_utf8_lossy(bytes).into_owned())?,
//!         _ => {}
//!     }
//! }
//! assert_eq!((numbers, text.as_str()), (vec![7], "seven"));
//! # Ok::<(), oomph_pickle::Error>(())
//! ```
#![forbid(unsafe_code)]

mod decoder;
mod error;
mod input;
mod instruction;
mod opcode;

pub use decoder::Decoder;
pub use error::{Error, Problem};
pub use instruction::{Code, Instruction, Op};

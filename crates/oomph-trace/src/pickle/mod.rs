//! Reads Python's pickles without running anything.
//!
//! [`Machine`] executes the instructions of protocols 2 to 5 that build plain data: numbers, texts, lists, tuples and
//! dicts. The others are refused. What the data means is decided by a [`Shapes`]: it gets every dict and list once filled, and
//! may replace it by a record of its own, so that a file of a million dicts never becomes a million
//! dicts in memory.

mod machine;
mod memo;
mod value;

pub(crate) use machine::{Limits, Machine, Shapes};
pub(crate) use value::{Atom, Heap, List, Value};

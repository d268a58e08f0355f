//! Reads PyTorch's memory snapshots: `torch.cuda.memory._snapshot()` of every version since 1.13.

mod gather;
mod json;
mod keys;
mod pickled;

pub(crate) use json::JsonSnapshot;
pub(crate) use pickled::read as read_pickle;

//! The ledger: one small file that every process of a run shares.
//!
//! The launcher writes it before the program starts: which virtual cards there are and what they can hold. Each
//! process that uses a virtual card maps it (`oomph-vgpu` does that) and keeps its books in it, so that a second
//! process on the same card sees the first one's use, and so that the launcher can read what happened however a
//! process ended.
//!
//! Design constraints:
//! - The file has a fixed size and is made of little-endian 64-bit words, so that the counters can be atomics in the
//!   processes and plain integers to a reader that opens the file.
//! - This crate has no dependencies and no `unsafe`: the mapping itself is the virtual GPU's business.
//! - A process may die at any instruction. A reader therefore trusts no counter to be consistent with another.
#![forbid(unsafe_code)]

mod description;
mod layout;
mod missing;
mod protocol;
mod snapshot;

pub use description::DeviceDescription;
pub use layout::{
    DEVICE_WORDS, DeviceWord, FILE_BYTES, HEADER_WORDS, HeaderWord, Kind, MAGIC, MAX_DEVICES, MAX_NOTES, MAX_PROCESSES,
    NOTE_BYTES, NoteKind, PROCESS_AT_PEAK, PROCESS_REFUSALS, PROCESS_USED, PROCESS_WORDS, PROCESS_WORDS_PER_DEVICE,
    VERSION, description_offset, device_word, note_offset, process_device_word, process_word,
};
pub use missing::MissingCard;
pub use protocol::Words;
pub use snapshot::{DeviceUse, Ledger, Note, ProcessDeviceUse, ProcessUse};

/// Where this crate's sources are, for [the build of the virtual GPU](https://docs.rs/oomph-vgpu).
pub const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The ledger is the file [`LEDGER_FILE`] in the folder that [`RUN_FOLDER_VARIABLE`] names.
pub use oomph_protocol::paths::{LEDGER as LEDGER_FILE, RUN_VARIABLE as RUN_FOLDER_VARIABLE};

/// The capacity, in bytes, of a card that stands for "no limit" (2 TiB). It is not larger, because PyTorch's
/// expandable segments reserve 9/8 of a card's capacity as addresses for every stream and pool, and a process has
/// 128 TiB of them.
pub const UNBOUNDED_CAPACITY: u64 = 2 << 40;

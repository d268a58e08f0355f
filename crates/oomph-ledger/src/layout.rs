//! The layout of the file, in words of 8 bytes.
//!
//! ```text
//! header | device counters | device descriptions | process slots | notes
//! ```

/// The first word of a ledger: "oomphlgr" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"oomphlgr");
/// Version of the layout. A process built for another one refuses the file.
pub const VERSION: u64 = 1;
/// Most cards of a run.
pub const MAX_DEVICES: usize = 16;
/// Most processes that ever created a context in one run.
pub const MAX_PROCESSES: usize = 512;
/// Most notes (warnings and unsupported calls) of a run; later ones are dropped.
pub const MAX_NOTES: usize = 256;
/// Bytes of one note, its kind and terminator included.
pub const NOTE_BYTES: usize = 256;
/// Bytes kept for one card's description.
pub(crate) const DESCRIPTION_BYTES: usize = 512;

/// Words of the header.
pub const HEADER_WORDS: usize = 16;

/// The header's words.
#[derive(Clone, Copy, Debug)]
pub enum HeaderWord {
    /// [`MAGIC`].
    Magic = 0,
    /// [`VERSION`].
    Version = 1,
    /// How many cards there are.
    Devices = 2,
    /// How many process slots were taken so far (may exceed [`MAX_PROCESSES`]).
    Processes = 3,
    /// How many notes were written so far (may exceed [`MAX_NOTES`]).
    Notes = 4,
}

/// Words of a device's counters.
pub const DEVICE_WORDS: usize = 8;

/// The counters that all processes on a card share.
#[derive(Clone, Copy, Debug)]
pub enum DeviceWord {
    /// Bytes in use now, by all processes, contexts included.
    Used = 0,
    /// The most that was ever in use, in bytes.
    Peak = 1,
    /// How many allocations the card refused.
    Refusals = 2,
    /// The size of the last refused allocation, in bytes.
    RefusedBytes = 3,
}

/// What a piece of device memory was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The CUDA context with its loaded modules.
    Context = 0,
    /// `cudaMalloc` and its kin.
    Malloc = 1,
    /// Physical memory for virtual address ranges (`cuMemCreate`), as expandable segments use.
    Mapped = 2,
    /// Stream-ordered pools (`cudaMallocAsync`).
    Pool = 3,
    /// Managed memory.
    Managed = 4,
    /// What a library takes for itself: handles, workspaces, communication buffers.
    Library = 5,
}

impl Kind {
    /// All kinds, in the order of their words.
    pub const ALL: [Self; 6] = [Self::Context, Self::Malloc, Self::Mapped, Self::Pool, Self::Managed, Self::Library];
}

/// Words of a process's books on one device: used, peak, used per kind, per kind at the peak, refusals.
pub const PROCESS_WORDS_PER_DEVICE: usize = 16;
/// Offset of the bytes per [`Kind`] in a process's books on a device, in words.
pub const PROCESS_USED: usize = 2;
/// Offset of the bytes per [`Kind`] at the peak, in words.
pub const PROCESS_AT_PEAK: usize = PROCESS_USED + Kind::ALL.len();
/// Offset of the count of refused allocations, in words.
pub const PROCESS_REFUSALS: usize = PROCESS_AT_PEAK + Kind::ALL.len();
/// Words of a process slot: pid, start time, then its books on each device.
pub const PROCESS_WORDS: usize = 8 + MAX_DEVICES * PROCESS_WORDS_PER_DEVICE;

const DEVICES_AT: usize = HEADER_WORDS;
const DESCRIPTIONS_AT: usize = DEVICES_AT + MAX_DEVICES * DEVICE_WORDS;
const PROCESSES_AT: usize = DESCRIPTIONS_AT + MAX_DEVICES * DESCRIPTION_BYTES / 8;
const NOTES_AT: usize = PROCESSES_AT + MAX_PROCESSES * PROCESS_WORDS;
/// Size of the file, in bytes.
pub const FILE_BYTES: usize = NOTES_AT * 8 + MAX_NOTES * NOTE_BYTES;

/// Index of a device counter, in words.
#[must_use]
pub const fn device_word(device: usize, word: DeviceWord) -> usize {
    DEVICES_AT + device * DEVICE_WORDS + word as usize
}

/// Offset of a device's description, in bytes.
#[must_use]
pub const fn description_offset(device: usize) -> usize {
    DESCRIPTIONS_AT * 8 + device * DESCRIPTION_BYTES
}

/// Index of the first word of a process slot: word 0 is the pid, word 1 its start time in clock ticks since boot.
#[must_use]
pub const fn process_word(slot: usize) -> usize {
    PROCESSES_AT + slot * PROCESS_WORDS
}

/// Index of the first word of a process's books on a device: 0 used, 1 peak, then what
/// [`PROCESS_USED`], [`PROCESS_AT_PEAK`] and [`PROCESS_REFUSALS`] say.
#[must_use]
pub const fn process_device_word(slot: usize, device: usize) -> usize {
    process_word(slot) + 8 + device * PROCESS_WORDS_PER_DEVICE
}

/// Offset of a note, in bytes: one byte of [`NoteKind`], then the text, zero-terminated.
#[must_use]
pub const fn note_offset(index: usize) -> usize {
    NOTES_AT * 8 + index * NOTE_BYTES
}

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// A sentence for the report's warnings.
    Warning = 1,
    /// The name of a function that the virtual GPU does not support and that the program called.
    Unsupported = 2,
    /// What a file was compiled for whose kernels were launched: `sm_80 sm_90 compute_90 in libfoo.so`.
    Code = 3,
    /// A limit of the host, by name, that left no addresses for memory which the card could hold.
    HostLimit = 4,
    /// The name of a file that has the CUDA runtime linked in statically and asked the driver for it.
    StaticRuntime = 5,
    /// A card that the program asked for and the run lacks ([`crate::MissingCard`]).
    MissingCard = 6,
}

//! The books: every byte is charged to a card and a process, in the ledger that all processes of the run share.

use std::ffi::{OsString, c_void};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use oomph_ledger::{
    DeviceDescription, DeviceWord, FILE_BYTES, HeaderWord, Kind, LEDGER_FILE, MAGIC, MAX_DEVICES, MAX_NOTES,
    NOTE_BYTES, NoteKind, PROCESS_REFUSALS, RUN_FOLDER_VARIABLE, VERSION, Words, description_offset, device_word,
    note_offset, process_device_word, process_word,
};

use crate::lock::{Mutex, Rank};

/// A slot number that no process has: this process has not used a card yet, or found the ledger full.
const NO_SLOT: usize = usize::MAX;

/// This process's books.
pub struct Books {
    base: NonNull<u8>,
    cards: Vec<DeviceDescription>,
    slot: AtomicUsize,
    /// Which process took the slot; a forked child must not write in its parent's.
    owner: AtomicU32,
    /// Whether what is asked of this instance of the library is the program's. A library in a link namespace may bring up
    /// a context of its own there, in a second instance of this library, which a real card never sees: it is asked
    /// without one.
    pub is_programs: bool,
    /// This process was forked after the books were opened and has not charged anything yet.
    freshly_forked: AtomicBool,
    /// Serialises slot taking and the copy of a peak's composition.
    lock: Mutex<()>,
    /// The run folder whose ledger is mapped.
    folder: Mutex<OsString>,
}

// SAFETY: `base` is a shared mapping that lives as long as the process; all access to it is by atomic words, and the
// other fields are synchronised types.
unsafe impl Send for Books {}
// SAFETY: as above.
unsafe impl Sync for Books {}

/// The run folder of this process, if it is this user's and nobody else's. A process may outlive its run, whose folder is
/// removed then; others can make a folder of the same name anew.
pub fn trusted_folder() -> Option<OsString> {
    let folder = std::env::var_os(RUN_FOLDER_VARIABLE)?;
    let found = std::fs::symlink_metadata(&folder).ok()?;
    (found.is_dir() && is_mine(&found) && found.mode() & 0o077 == 0).then_some(folder)
}

fn is_mine(found: &std::fs::Metadata) -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    found.uid() == unsafe { libc::geteuid() }
}

fn open_ledger(folder: &OsString) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = options.open(Path::new(folder).join(LEDGER_FILE)).ok()?;
    let found = file.metadata().ok()?;
    (found.is_file() && is_mine(&found) && found.len() == FILE_BYTES as u64).then_some(file)
}

/// Maps the ledger of this process's run folder; `None` where there is no ledger that this library understands.
pub fn open(is_programs: bool) -> Option<Books> {
    let folder = trusted_folder()?;
    let file = open_ledger(&folder)?;
    // SAFETY: a new shared mapping of a file whose size was just checked; only oomph's own processes know it.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            FILE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    let mut books = Books {
        base: NonNull::new(base.cast())?,
        cards: Vec::new(),
        slot: AtomicUsize::new(NO_SLOT),
        owner: AtomicU32::new(0),
        is_programs,
        freshly_forked: AtomicBool::new(false),
        lock: Mutex::new(Rank::LedgerSlot, ()),
        folder: Mutex::new(Rank::RunFolder, folder),
    };
    let header = |word: HeaderWord| books.word(word as usize).load(Ordering::Relaxed);
    if header(HeaderWord::Magic) != MAGIC || header(HeaderWord::Version) != VERSION {
        return None;
    }
    let count = usize::try_from(header(HeaderWord::Devices)).ok().filter(|count| *count <= MAX_DEVICES)?;
    for device in 0..count {
        let at = description_offset(device);
        // SAFETY: the record lies inside the mapping, and nobody writes descriptions after the launcher did.
        let bytes = unsafe { std::slice::from_raw_parts(books.base.as_ptr().add(at), process_word(0) * 8 - at) };
        books.cards.push(DeviceDescription::decode(bytes)?);
    }
    Some(books)
}

impl Words for Books {
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: indices come from the layout, so they lie inside the mapping; it is page-aligned and lives as long as
        // the process, and every access to these words is atomic.
        unsafe { &*self.base.as_ptr().cast::<AtomicU64>().add(index) }
    }

    fn capacity(&self, device: usize) -> Option<u64> {
        let at = (description_offset(device) + DeviceDescription::CAPACITY_AT) / 8;
        (device < self.cards.len()).then(|| self.word(at).load(Ordering::Relaxed))
    }

    fn devices(&self) -> usize {
        self.cards.len()
    }
}

impl Books {
    /// In a forked child: what the parent holds is the parent's.
    pub fn forked(&self) {
        self.slot.store(NO_SLOT, Ordering::Relaxed);
        self.freshly_forked.store(true, Ordering::Relaxed);
    }

    /// When the process ends in good order: what it held is free again for the others.
    pub fn close(&self) {
        let slot = self.slot.swap(NO_SLOT, Ordering::Relaxed);
        if slot != NO_SLOT && self.owner.load(Ordering::Relaxed) == std::process::id() {
            self.clear(slot);
        }
    }

    /// Looks, after a fork and before the first charge, whether this process was given another run folder.
    #[inline]
    pub fn refresh(&self) {
        if self.freshly_forked.load(Ordering::Relaxed) {
            self.follow();
        }
    }

    /// Takes over the ledger of another run folder, if this process was given one after it was forked: a fork server
    /// opens its books while it imports, and each of its children is a run of its own. The place of the mapping stays,
    /// so nothing that was derived from it goes stale; a ledger of other cards is therefore not taken. Their capacities
    /// may differ: those are read where they are needed (see [`Books::capacity_bytes`]).
    #[cold]
    fn follow(&self) {
        let Some(given) = trusted_folder() else { return };
        let mut folder = self.folder.lock();
        if given == *folder {
            return;
        }
        let Some(file) = open_ledger(&given) else { return };
        let at = description_offset(0);
        let mut descriptions = vec![0; process_word(0) * 8 - at];
        // SAFETY: the descriptions lie inside the mapping, and nobody writes them after the launcher did.
        let mine = unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), descriptions.len()) };
        if file.read_exact_at(&mut descriptions, at as u64).is_err() {
            return;
        }
        for device in 0..self.cards.len() {
            let at = description_offset(device) - at + DeviceDescription::CAPACITY_AT;
            if let (Some(theirs), Some(mine)) = (descriptions.get_mut(at..at + 8), mine.get(at..at + 8)) {
                theirs.copy_from_slice(mine);
            }
        }
        if descriptions != mine {
            return;
        }
        // SAFETY: replaces our own mapping by one of the same size, in one step; all access to it is by atomic words.
        let base = unsafe {
            libc::mmap(
                self.base.as_ptr().cast(),
                FILE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                0,
            )
        };
        if base != libc::MAP_FAILED {
            *folder = given;
        }
    }

    /// This process's slot, taken at its first use of a card.
    fn slot(&self) -> Option<usize> {
        let slot = self.slot.load(Ordering::Relaxed);
        if slot != NO_SLOT {
            return Some(slot);
        }
        self.freshly_forked.store(false, Ordering::Relaxed);
        let _guard = self.lock.lock();
        let slot = self.slot.load(Ordering::Relaxed);
        if slot != NO_SLOT {
            return Some(slot);
        }
        let pid = std::process::id();
        let slot = self.take_slot(pid, start_time(pid).unwrap_or(0))?;
        self.owner.store(pid, Ordering::Relaxed);
        self.slot.store(slot, Ordering::Relaxed);
        Some(slot)
    }

    /// Gives back what processes hold that died without saying so. Returns whether there were any.
    pub fn sweep_dead(&self) -> bool {
        let _guard = self.lock.lock();
        self.sweep(&|pid, started| start_time(pid) == Some(started))
    }

    /// What a card can hold, in bytes. In a child of a fork server this is what the child's own run was given, which need
    /// not be what the server had.
    pub fn capacity_bytes(&self, device: usize) -> Option<u64> {
        self.capacity(device)
    }

    /// The cards of the run, by ledger index.
    pub fn cards(&self) -> &[DeviceDescription] {
        &self.cards
    }

    /// Charges `bytes` on a card to this process, or refuses what the card cannot hold.
    pub fn charge(&self, device: usize, kind: Kind, bytes: u64) -> bool {
        if self.charge_if_free(device, kind, bytes) {
            return true;
        }
        if device >= MAX_DEVICES {
            return false;
        }
        self.word(device_word(device, DeviceWord::Refusals)).fetch_add(1, Ordering::Relaxed);
        self.word(device_word(device, DeviceWord::RefusedBytes)).store(bytes, Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            self.word(process_device_word(slot, device) + PROCESS_REFUSALS).fetch_add(1, Ordering::Relaxed);
        }
        false
    }

    /// As [`charge`](Self::charge), for an internal best-effort request: a failure is not counted as a refusal.
    pub fn charge_if_free(&self, device: usize, kind: Kind, bytes: u64) -> bool {
        if !self.is_programs {
            return true;
        }
        let slot = self.slot();
        if !(self.take(device, bytes) || self.sweep_dead() && self.take(device, bytes)) {
            return false;
        }
        let Some(slot) = slot else { return true };
        if let Some(held) = self.enter(slot, device, kind, bytes) {
            let _guard = self.lock.lock();
            self.keep_peak(slot, device, held);
        }
        true
    }

    /// Gives back what [`charge`](Self::charge) took. A forked child, which charged nothing, gives nothing back.
    pub fn release(&self, device: usize, kind: Kind, bytes: u64) {
        let slot = self.slot.load(Ordering::Relaxed);
        if slot == NO_SLOT || device >= MAX_DEVICES {
            return;
        }
        self.give_back(slot, device, kind, bytes);
    }

    /// Bytes of a card that nobody holds.
    pub fn free_bytes(&self, device: usize) -> u64 {
        let Some(capacity) = self.capacity(device) else { return 0 };
        capacity.saturating_sub(self.word(device_word(device, DeviceWord::Used)).load(Ordering::Relaxed))
    }

    /// The run folder of this process's run.
    pub fn run_folder(&self) -> PathBuf {
        PathBuf::from(&*self.folder.lock())
    }

    /// Every process that holds memory on a card, with the bytes it holds.
    pub fn holders(&self, device: usize) -> Vec<(u32, u64)> {
        let slots = (0..self.slots()).map(|slot| (self.process(slot), self.held(slot, device)));
        slots.filter(|(_, held)| *held > 0).collect()
    }

    /// Leaves a note in the ledger; beyond [`MAX_NOTES`] it is dropped.
    pub fn note(&self, kind: NoteKind, text: &str) {
        let mut length = text.len().min(NOTE_BYTES - 2);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        if self.is_noted(kind, &text.as_bytes()[..length]) {
            return;
        }
        let index = self.word(HeaderWord::Notes as usize).fetch_add(1, Ordering::Relaxed) as usize;
        if index >= MAX_NOTES {
            return;
        }
        // SAFETY: the record lies inside the mapping, its place was taken by this call alone, and one byte is left for the
        // terminator, which is there because the file starts as zeros.
        unsafe {
            let at = self.base.as_ptr().add(note_offset(index));
            ptr::copy_nonoverlapping(text.as_ptr(), at.add(1), length);
            at.cast::<c_void>().cast::<u8>().write_volatile(kind as u8);
        }
    }

    /// Whether another process of the job has said the same: there is room for few notes. One that is being written now is
    /// not seen, and is only said twice.
    fn is_noted(&self, kind: NoteKind, text: &[u8]) -> bool {
        let noted = (self.word(HeaderWord::Notes as usize).load(Ordering::Relaxed) as usize).min(MAX_NOTES);
        (0..noted).any(|index| {
            // SAFETY: the record lies inside the mapping, and its bytes may be anything.
            unsafe {
                let at = self.base.as_ptr().add(note_offset(index)).cast::<u8>();
                let same = |(offset, byte): (usize, &u8)| at.add(1 + offset).read_volatile() == *byte;
                at.read_volatile() == kind as u8
                    && text.iter().enumerate().all(same)
                    && at.add(1 + text.len()).read_volatile() == 0
            }
        })
    }
}

/// When a living process started, in clock ticks since boot; `None` for a process that is gone or a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, so the fields are counted from its end.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

//! The log of what a program takes of its cards and gives back, for recordings of programs without PyTorch.
//!
//! It is kept where the run folder holds a folder [`paths::DEVICE_LOG`]: each process then writes `PID.jsonl` there, one object a
//! line, in the format that `oomph_trace::device_log` documents and reads. Lines are written in blocks, at a refusal, and
//! when the process ends; a process that is killed loses the last block. Where the folder is absent a call costs one load.

pub use oomph_protocol::device_log::Kind;
use oomph_protocol::{DEVICE_LOG, paths};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::books;
use crate::lock::{Mutex, Rank};

/// Lines are written when this many bytes of them have come together.
const BLOCK: usize = 16 << 10;

/// The most that is written of one process, in bytes: run folders often lie in memory. Half a million lines fit.
const MOST: usize = 64 << 20;

/// Nobody has looked for the folder yet; it is absent; it is there.
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// The log of this process.
pub struct DeviceLog {
    /// Whether it is kept, as far as that is known.
    wanted: AtomicU8,
    log: Mutex<Log>,
}

struct Log {
    /// The process that the rest belongs to: a forked child begins a log of its own.
    pid: u32,
    file: Option<File>,
    lines: String,
    written: usize,
}

impl DeviceLog {
    /// A log that nobody has looked for yet.
    pub const fn new() -> Self {
        let log = Log { pid: 0, file: None, lines: String::new(), written: 0 };
        Self { wanted: AtomicU8::new(UNKNOWN), log: Mutex::new(Rank::DeviceLog, log) }
    }

    /// Notes what happened on a card, by the ledger's index. A block's freeing must be noted before its address can be
    /// handed out again, and its allocation after.
    #[inline]
    pub fn note(&self, kind: Kind, card: usize, address: usize, size: usize) {
        if self.wanted.load(Ordering::Relaxed) != OFF {
            self.write(kind, card, address, size);
        }
    }

    #[cold]
    fn write(&self, kind: Kind, card: usize, address: usize, size: usize) {
        let mut log = self.log.lock();
        let pid = std::process::id();
        if log.pid != pid {
            *log = Log { pid, file: open(pid), lines: String::new(), written: 0 };
            self.wanted.store(if log.file.is_some() { ON } else { OFF }, Ordering::Relaxed);
        }
        if log.file.is_none() {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
        let kind_name = kind.name();
        // Writing to a string cannot fail.
        if log.written == 0 && log.lines.is_empty() {
            let _ = write!(log.lines, r#"{{"schema":"{DEVICE_LOG}","#);
        } else {
            log.lines.push('{');
        }
        let _ = writeln!(
            log.lines,
            r#""t":{time},"pid":{pid},"device":{card},"kind":"{kind_name}","address":{address},"size":{size}}}"#
        );
        if log.lines.len() >= BLOCK || kind == Kind::Refuse {
            log.flush();
        }
    }

    /// Writes what is left, when the process ends.
    pub fn finish(&self) {
        if self.wanted.load(Ordering::Relaxed) == ON {
            let mut log = self.log.lock();
            if log.pid == std::process::id() {
                log.flush();
            }
        }
    }

    /// In a forked child: it has to look for the folder again, because it may belong to another run.
    pub fn forget(&self) {
        self.wanted.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// The log of a process, if the run folder asks for one.
fn open(pid: u32) -> Option<File> {
    let folder = books::trusted_folder()?;
    File::create(paths::of_process(Path::new(&folder), paths::DEVICE_LOG, pid, paths::DEVICE_LOG_END)).ok()
}

impl Log {
    fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        self.written += self.lines.len();
        if self.written > MOST {
            self.lines.clear();
            let _ = writeln!(self.lines, r#"{{"kind":"{}"}}"#, Kind::Cut.name());
        }
        // A log that cannot be written must not disturb the program.
        let _ = file.write_all(self.lines.as_bytes());
        self.lines.clear();
        if self.written > MOST {
            self.file = None;
        }
    }
}

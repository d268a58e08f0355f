//! One pass over a log of any length in bounded memory.
//!
//! Most lines of a log say nothing here, and must cost nothing: a search for some short probes runs over the raw bytes,
//! and only a line with a probe is looked at again. Around each such line 64 KiB before it (for the traceback) and
//! 16 KiB behind it (for the rest of the message) are in the buffer.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, packed};
use memchr::{memchr_iter, memchr2, memrchr2};

use super::incident::Session;
use super::place::Place;
use super::report::Report;
use super::settings;

/// Bytes that stay in the buffer before a line.
const BEHIND: usize = 64 << 10;
/// Bytes that must follow a line before it is looked at, unless the log ends.
const AHEAD: usize = 16 << 10;
/// Bytes of a line that are looked at around a probe; a log can be one line of many gigabytes.
const LINE: usize = 16 << 10;
/// Bytes at the start of a log in which settings are looked for; later only close to a failure.
const HEAD: u64 = 8 << 20;
/// Bytes that are read at a time.
pub(crate) const BLOCK: usize = 1 << 20;
/// Messages that are evaluated one by one; beyond, at most one in each [`SPARSE`] bytes, so that a log full of them
/// takes no more than linear time with a small factor.
const DENSE: u64 = 500;
/// The same within one line: what a line of megabytes repeats is the same message again.
const DENSE_IN_LINE: u64 = 12;
/// See [`DENSE`].
const SPARSE: u64 = 64 << 10;

/// Short strings of which every word of the table of messages holds at least one; a test checks that. They are rare in
/// ordinary logs, and in two groups because the vectorised search holds no more than 64 strings at a time.
const PROBES: [&[&str]; 2] = [
    &[
        "emory",
        "lloc",
        "RROR",
        "_STATU",
        "cuda",
        "river",
        "esource",
        "oom",
        "OOM",
        "EMORY",
        "ailed to",
        "Kill",
        "failure",
        "runner ",
        "xceed",
        "SIGK",
        "VRAM",
        "nough",
        "tcode",
        "LLOC",
        "legal",
        "ssert",
        "capac",
        "of tokens",
        "age_man",
        "8007000",
        "ECC",
        "XHAUST",
        "busy",
        "OURCES",
        "ligned",
        "No space",
        "code: 1",
        "code 1",
        "us 137",
        "code -9",
        "code = -9",
        "NVRM",
        "NVML",
        "CUDA",
    ],
    &[
        "kernel im",
        "ordinal",
        "compatib",
        "unexpec",
        "disk is",
        "paging f",
        "too much",
        "rejected",
        "fer size",
        "of size",
        "NaN",
        "-fracti",
        "mpting to",
        "EL0004",
        "the bus",
        "on host",
        "Dst te",
        "DNN li",
        "self-at",
        "207001",
        "eError",
        "chErr",
        "NetE",
        "udnn",
        "us err",
        "unable to",
        "METAL",
        ": kill",
        "cuM",
        "I call",
        "launch f",
        "V cache",
        "mit inc",
        "sing all",
        "Device req",
        "n requested",
        "too large",
        "nsExc",
        "f GPU",
        "nforce f",
        "f in-use",
        "] Stats:",
        "s in pool",
        "cuDNN",
        "server p",
        "ny implement",
        "THCuda",
        "GpuArr",
        "led call to",
        "dispatched on",
    ],
];

static SEARCHERS: LazyLock<Option<[Searcher; 2]>> =
    LazyLock::new(|| Some([Searcher::new(PROBES[0])?, Searcher::new(PROBES[1])?]));

/// A search for probes: vectorised where the machine can, an automaton elsewhere.
enum Searcher {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
}

impl Searcher {
    fn new(probes: &[&str]) -> Option<Self> {
        match packed::Searcher::new(probes) {
            Some(packed) => Some(Self::Packed(packed)),
            None => AhoCorasick::new(probes).ok().map(Self::Automaton),
        }
    }

    fn find(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Packed(packed) => packed.find(bytes).map(|found| found.start()),
            Self::Automaton(automaton) => automaton.find(bytes).map(|found| found.start()),
        }
    }
}

/// The next hit of one search, kept until the scan has passed it.
#[derive(Clone, Copy)]
enum Next {
    /// Not searched from here.
    Unknown,
    /// At this place of the buffer.
    At(usize),
    /// Nothing before this place.
    NoneBefore(usize),
}

impl Next {
    /// The next hit in `from..until`, searched only if it is not known.
    fn find(&mut self, from: usize, until: usize, search: impl FnOnce(usize, usize) -> Option<usize>) -> Option<usize> {
        let start = match *self {
            Self::At(place) if place >= from => return (place < until).then_some(place),
            Self::NoneBefore(place) if place >= until => return None,
            Self::NoneBefore(place) if place > from => place,
            _ => from,
        };
        *self = match search(start, until) {
            Some(place) => Self::At(place),
            None => Self::NoneBefore(until),
        };
        match *self {
            Self::At(place) => Some(place),
            _ => None,
        }
    }

    fn moved(self, by: usize) -> Self {
        match self {
            Self::At(place) => place.checked_sub(by).map_or(Self::Unknown, Self::At),
            Self::NoneBefore(place) => place.checked_sub(by).map_or(Self::Unknown, Self::NoneBefore),
            Self::Unknown => Self::Unknown,
        }
    }
}

/// Takes a log in pieces.
#[derive(Clone)]
pub(crate) struct Scanner {
    session: Session,
    buffer: Vec<u8>,
    /// Everything before this place in the buffer was looked at.
    done: usize,
    /// The line number at `counted`, from 1, and that place in the buffer.
    line: u64,
    counted: usize,
    /// Bytes of the log before the buffer.
    dropped: u64,
    /// The next hits: of the two groups of probes, and of the words of settings.
    next: [Next; 3],
    evaluated: u64,
    /// The number of the line that was looked at last, and how many messages were evaluated in it.
    in_line: (u64, u64),
    /// Where in the log the last message was evaluated.
    last_evaluated: u64,
}

impl Scanner {
    /// Keeps this many failures.
    pub fn new(most_failures: usize) -> Self {
        Self {
            session: Session::new(most_failures),
            buffer: Vec::new(),
            done: 0,
            line: 1,
            counted: 0,
            dropped: 0,
            next: [Next::Unknown; 3],
            evaluated: 0,
            in_line: (0, 0),
            last_evaluated: 0,
        }
    }

    /// Reads a piece of at most [`BLOCK`] bytes from a reader; whether there was one.
    pub fn read_from(&mut self, reader: &mut impl std::io::Read) -> std::io::Result<bool> {
        let held = self.buffer.len();
        self.buffer.resize(held + BLOCK, 0);
        let read = loop {
            match reader.read(&mut self.buffer[held..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.buffer.truncate(held);
                return Err(error);
            }
        };
        self.buffer.truncate(held + read);
        self.advance(false);
        Ok(read > 0)
    }

    /// Takes a piece of the log.
    pub fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(BLOCK) {
            self.buffer.extend_from_slice(piece);
            self.advance(false);
        }
    }

    /// Looks at everything that is there, as if nothing would follow. How many failures are known then.
    pub fn settle(&mut self) -> usize {
        self.advance(true);
        self.session.count()
    }

    /// How many failures are known so far.
    pub fn count(&self) -> usize {
        self.session.count()
    }

    /// What the log says, after its end.
    pub fn finish(mut self) -> Report {
        self.advance(true);
        let bytes = self.dropped + self.buffer.len() as u64;
        let mut lines = self.line_at(self.buffer.len());
        if self.buffer.last().is_none_or(|byte| *byte == b'\n') {
            lines -= 1;
        }
        let first = self.line_at(0);
        self.session.end(&String::from_utf8_lossy(&self.buffer), first);
        self.session.report(lines, bytes)
    }

    fn advance(&mut self, at_end: bool) {
        let until = if at_end { self.buffer.len() } else { self.buffer.len().saturating_sub(AHEAD) };
        while let Some(hit) = self.next_hit(until) {
            self.done = self.visit(hit);
        }
        self.done = self.done.max(until);
        self.drop_front();
    }

    fn next_hit(&mut self, until: usize) -> Option<usize> {
        let [first, second] = SEARCHERS.as_ref()?;
        let (from, buffer) = (self.done, &self.buffer);
        if from >= until {
            return None;
        }
        let [next_first, next_second, next_setting] = &mut self.next;
        let search = |searcher: &Searcher, from: usize, until: usize| {
            searcher.find(&buffer[from..until]).map(|place| from + place)
        };
        let one = next_first.find(from, until, |from, until| search(first, from, until));
        let two = next_second.find(from, until, |from, until| search(second, from, until));
        // What a run prints about itself is at its start.
        let setting = if self.dropped + (from as u64) < HEAD {
            next_setting.find(from, until, |from, until| settings::find(&buffer[from..until]).map(|place| from + place))
        } else {
            None
        };
        [one, two, setting].into_iter().flatten().min()
    }

    /// Looks at the line around a probe; the place from where the search goes on.
    fn visit(&mut self, hit: usize) -> usize {
        let from = hit.saturating_sub(LINE).max(self.buffer.len().min(self.done).saturating_sub(LINE));
        let start = memrchr2(b'\n', b'\r', &self.buffer[from..hit]).map_or(from, |at| from + at + 1);
        let to = (hit + LINE).min(self.buffer.len());
        let end = memchr2(b'\n', b'\r', &self.buffer[hit..to]).map_or(to, |at| hit + at);
        let number = self.line_at(start);
        let at = self.dropped + hit as u64;
        if self.in_line.0 != number {
            self.in_line = (number, 0);
        }
        let dense = self.evaluated < DENSE && self.in_line.1 < DENSE_IN_LINE;
        let evaluate = dense || at.saturating_sub(self.last_evaluated) >= SPARSE;
        let behind = start.saturating_sub(BEHIND);
        let place = Place {
            window: &self.buffer[behind..(end + AHEAD).min(self.buffer.len())],
            start: start - behind,
            end: end - behind,
            number,
        };
        if self.session.look(&place, evaluate) && evaluate {
            self.evaluated += 1;
            self.in_line.1 += 1;
            self.last_evaluated = at;
        }
        end.max(hit + 1)
    }

    /// The number of the line at a place that is not before an earlier one that was asked for.
    fn line_at(&mut self, place: usize) -> u64 {
        if place > self.counted {
            self.line += memchr_iter(b'\n', &self.buffer[self.counted..place]).count() as u64;
            self.counted = place;
            return self.line;
        }
        // A line is asked for again, or a little earlier, where it was too long for one look.
        self.line - memchr_iter(b'\n', &self.buffer[place..self.counted]).count() as u64
    }

    fn drop_front(&mut self) {
        let front = self.done.saturating_sub(BEHIND + LINE);
        if front < BLOCK / 2 {
            return;
        }
        self.line_at(front.max(self.counted));
        self.buffer.copy_within(front.., 0);
        self.buffer.truncate(self.buffer.len() - front);
        self.done -= front;
        self.next = self.next.map(|next| next.moved(front));
        self.counted -= front;
        self.dropped += front as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::patterns::Table;

    #[test]
    fn the_probes_cover_every_word_of_the_table() {
        let words = Table::builtin().words();
        let missed: Vec<_> =
            words.iter().filter(|word| !PROBES.iter().copied().flatten().any(|probe| word.contains(probe))).collect();
        assert!(missed.is_empty(), "no probe for {missed:?}");
        assert!(words.len() > 200);
        assert!(PROBES.iter().all(|group| group.len() <= 64));
    }
}

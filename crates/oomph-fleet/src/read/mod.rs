//! Turns a file into rows: its kind, from its first bytes, and its contents.

mod journal;
mod log;
mod report;
mod snapshot;

use std::io::{self, BufRead, BufReader, Read};

use oomph_explain::snapshot::Card;
use oomph_gpu::{Catalogue, Gpu};

use crate::found::{Day, Found};
use crate::input::{Id, Item};
use crate::schema::{BadFile, File};

/// How much of a file is looked at to tell what it is, in bytes.
const PEEK: usize = 64 << 10;
/// The largest report or journal, in bytes: larger ones were not written by oomph.
const LARGEST_TEXT: u64 = 64 << 20;
/// A day in microseconds.
const DAY_US: i64 = 86_400_000_000;
/// Time stamps before 2015 are not of a run on a GPU that this program knows, in microseconds since 1970.
const EARLIEST_US: i64 = 1_420_070_400_000_000;

/// How files are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The card that the snapshots were taken on, where it is known.
    pub gpu: Option<Gpu>,
    /// Whether snapshots are replayed under other settings and on other cards.
    pub what_if: bool,
    /// Whether the events of snapshots become rows.
    pub events: bool,
    /// Whether the part of a damaged snapshot that can be read is used.
    pub salvage: bool,
    /// The largest snapshot that is read, in bytes of the file.
    pub largest_snapshot: u64,
    /// The most memory that reading one snapshot may take, in bytes.
    pub snapshot_memory: u64,
    /// The cards of the what-if table.
    pub cards: Vec<Card>,
    /// Now, in microseconds since 1970: a time stamp that is later is wrong.
    pub now_us: i64,
}

/// The sizes of cards that snapshots are replayed on: 8, 12, 16, 24, 48 and 80 GB.
const LADDER: [&str; 6] = ["rtx-4060", "rtx-3060", "rtx-4080", "rtx-4090", "l40s", "h100"];

/// The cards that snapshots are replayed on.
#[must_use]
pub fn ladder() -> Vec<Card> {
    let card = |gpu: &Gpu| Card {
        name: gpu.id.clone(),
        capacity_bytes: gpu.capacity_bytes,
        context_bytes: gpu.context.expected_bytes,
    };
    LADDER.iter().filter_map(|name| Catalogue::builtin().get(name)).map(card).collect()
}

/// What a file was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What a program printed.
    Log,
    /// A recording of memory.
    Snapshot,
    /// The answer of a dry run.
    DryRun,
    /// The journal of guarded runs.
    Journal,
    /// What a dry run named, which belongs to a snapshot.
    Names,
    /// None of these.
    Unknown,
}

impl Kind {
    /// The word for it in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Snapshot => "snapshot",
            Self::DryRun => "dry-run",
            Self::Journal => "journal",
            Self::Names => "names",
            Self::Unknown => "unknown",
        }
    }
}

/// What came of a file.
pub struct Outcome {
    /// What it was.
    pub kind: Kind,
    /// Its rows, with the one in `files` or in `bad_files`.
    pub found: Found,
    /// Whether it could be read.
    pub good: bool,
    /// Hashes of parts that are collected by themselves: attempts of a journal.
    pub parts: Vec<Id>,
    /// Whether it may hold more by the next collect, and is to be looked at again.
    pub open: bool,
}

/// Why a file is of no use, in a line.
type Reason = String;

/// Reads a file. Whatever is in it, there is an outcome. `seen` says whether a part was collected before.
#[must_use]
pub fn read(item: &Item, id: Id, reading: &Reading, seen: &dyn Fn(Id) -> bool) -> Outcome {
    let mut outcome =
        Outcome { kind: Kind::Unknown, found: Found::default(), good: true, parts: Vec::new(), open: false };
    let context = Context { item, id: id.to_string(), reading };
    let mut notes = Vec::new();
    match rows(&context, &mut outcome, &mut notes, seen) {
        // A journal that may grow is not a file of the dataset yet, only its attempts are.
        Ok(()) if outcome.open => {}
        Ok(()) => {
            let failures = outcome.found.count::<crate::schema::Failure>();
            outcome.found.push(
                context.day(),
                File {
                    file_id: Some(context.id.clone()),
                    kind: Some(outcome.kind.word().to_owned()),
                    path: Some(item.path.clone()),
                    bytes: i64::try_from(item.size).ok(),
                    written_at: Some(item.modified_us),
                    failures: i64::try_from(failures).ok(),
                    notes: (!notes.is_empty()).then(|| notes.join("; ")),
                },
            );
        }
        Err(reason) => {
            outcome.good = false;
            outcome.found = bad(item, id, outcome.kind, reason);
        }
    }
    outcome
}

/// The row of a file that cannot be read.
#[must_use]
pub fn bad(item: &Item, id: Id, kind: Kind, reason: String) -> Found {
    let mut found = Found::default();
    found.push(
        day_of(item.modified_us),
        BadFile {
            file_id: Some(id.to_string()),
            kind: Some(kind.word().to_owned()),
            path: Some(item.path.clone()),
            bytes: i64::try_from(item.size).ok(),
            written_at: Some(item.modified_us),
            reason: Some(reason),
        },
    );
    found
}

/// The day of a time in microseconds since 1970.
#[must_use]
pub fn day_of(time_us: i64) -> Day {
    Day::try_from(time_us.div_euclid(DAY_US)).unwrap_or(0)
}

/// The file that is being read.
struct Context<'a> {
    item: &'a Item,
    id: String,
    reading: &'a Reading,
}

impl Context<'_> {
    /// The day on which the file was last written.
    fn day(&self) -> Day {
        day_of(self.item.modified_us)
    }

    /// The identifier of a part of the file.
    fn part(&self, number: impl std::fmt::Display) -> Option<String> {
        Some(format!("{}-{number}", self.id))
    }

    /// A time that a file states, where it can be true: not before there were such cards, not in the future.
    fn plausible(&self, time_us: Option<i64>) -> Option<i64> {
        time_us.filter(|time| (EARLIEST_US..=self.reading.now_us + DAY_US).contains(time))
    }
}

fn rows(
    context: &Context,
    outcome: &mut Outcome,
    notes: &mut Vec<String>,
    seen: &dyn Fn(Id) -> bool,
) -> Result<(), Reason> {
    let reader = context.item.body.open().map_err(unreadable)?;
    let mut reader = BufReader::with_capacity(PEEK, reader);
    let start = filled(&mut reader).map_err(unreadable)?;
    if start.is_empty() {
        return Err("the file is empty".to_owned());
    }
    // A report of a dry run has keys that recordings have as well.
    if schema(start).is_none() && oomph_trace::is_recording(start) {
        outcome.kind = Kind::Snapshot;
        return snapshot::read(context, reader, &mut outcome.found, notes);
    }
    let unpacked = oomph_trace::unpacked(reader, false).map_err(unreadable)?;
    let mut reader = BufReader::with_capacity(PEEK, unpacked);
    let start = filled(&mut reader).map_err(unreadable)?;
    outcome.kind = kind_of_text(start)?;
    match outcome.kind {
        Kind::DryRun => report::read(context, &whole(reader)?, &mut outcome.found),
        Kind::Journal => {
            let text = whole(reader)?;
            journal::read(context, &text, outcome, notes, seen);
            Ok(())
        }
        Kind::Names => Ok(()),
        _ => log::read(context, reader, &mut outcome.found, notes).map_err(unreadable),
    }
}

/// Fills the buffer of a reader as far as there is something: a decompressor gives little at a time.
fn filled<R: Read>(reader: &mut BufReader<R>) -> io::Result<&[u8]> {
    reader.fill_buf()
}

/// The name in the schema of a JSON document of oomph, such as `dry-run` in `"schema": "oomph.dry-run/1"`, where the
/// beginning of the document has it. A log that quotes a document has a backslash before each quote.
fn schema(start: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"schema\"";
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    text.first().filter(|first| **first == b'{')?;
    memchr::memmem::find_iter(text, KEY).find_map(|at| {
        let rest = text[at + KEY.len()..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let name = rest.strip_prefix(b"\"oomph.")?;
        name.split(|byte| *byte == b'/' || *byte == b'"').next()
    })
}

/// What a text is, by its beginning.
fn kind_of_text(start: &[u8]) -> Result<Kind, Reason> {
    match schema(start) {
        Some(b"dry-run") => return Ok(Kind::DryRun),
        Some(b"journal") => return Ok(Kind::Journal),
        Some(b"names") => return Ok(Kind::Names),
        Some(_) => {
            return Err("an answer of oomph that is neither of a dry run nor a journal; give the log or the snapshot"
                .to_owned());
        }
        None => {}
    }
    // A text in UTF-16 has a zero in every second byte, and one of these at its start.
    let wide = start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]);
    let zeros = memchr::memchr_iter(0, start).count();
    let sparse = zeros * 16 > start.len() && zeros * 3 < start.len() || zeros * 10 > start.len() * 9;
    // Terminals are moved by tabs, returns, backspaces and escapes; of the other control characters a text has next to none.
    let is_control = |byte: &&u8| matches!(byte, 1..=7 | 11 | 14..=26 | 28..=31 | 127);
    let controls = start.iter().filter(is_control).count();
    if !wide && (sparse || controls * 20 > start.len()) {
        return Err("neither a text nor a recording of memory".to_owned());
    }
    Ok(Kind::Log)
}

/// A text that is read as a whole.
fn whole(reader: impl Read) -> Result<Vec<u8>, Reason> {
    let mut text = Vec::new();
    reader.take(LARGEST_TEXT + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LARGEST_TEXT {
        return Err(format!("larger than {} MiB, which no report or journal is", LARGEST_TEXT >> 20));
    }
    Ok(text)
}

fn unreadable(error: io::Error) -> Reason {
    format!("cannot read it: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_identified_by_its_beginning() {
        assert_eq!(kind_of_text(b"{\"schema\":\"oomph.dry-run/1\""), Ok(Kind::DryRun));
        assert_eq!(kind_of_text(b"{\n  \"schema\": \"oomph.journal/1\""), Ok(Kind::Journal));
        assert_eq!(kind_of_text(b"Traceback (most recent call last):"), Ok(Kind::Log));
        assert_eq!(kind_of_text(b"\xff\xfeT\0r\0a\0c\0"), Ok(Kind::Log));
        assert_eq!(kind_of_text(b"{\"devices\":[{\"index\":0}],\"schema\" : \"oomph.dry-run/1\"}"), Ok(Kind::DryRun));
        assert_eq!(kind_of_text(br#"{"message":"{\"schema\":\"oomph.dry-run/1\"}"}"#), Ok(Kind::Log));
        assert!(kind_of_text(b"{\"schema\":\"oomph.fix/1\"").unwrap_err().contains("neither of a dry run"));
        assert_eq!(kind_of_text(b"\x1b[32mstep 1\x1b[0m\r\x08\tloss"), Ok(Kind::Log));
        // A program whose bytes are packed has few zeros.
        let packed: Vec<u8> = (0..4096_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert!(kind_of_text(&packed).is_err());
        assert!(kind_of_text(b"\x7fELF\x02\x01\x01\0\0\0\0\x01\x03\x3e\x07\x02\x09").is_err());
    }
}

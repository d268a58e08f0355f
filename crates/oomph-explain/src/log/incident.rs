//! From messages to failures: the same crash is told many times, by libraries, wrappers, launchers and other ranks.

use oomph_remedy::Cause;

use super::bfc;
use super::causes::{self, Evidence};
use super::facts::{self, Reading};
use super::front_end;
use super::identities;
use super::kind::Kind;
use super::operation;
use super::patterns::{Pattern, Table, Verdict};
use super::quoted;
use super::remedies;
use super::report::{Facts, Failure, NotOom, Report};
use super::settings;
use super::site::{self, Frame};
use super::size;
use super::text::{self, Paragraph};

/// Messages this many lines apart can be about the same failure.
const SAME_FAILURE: u64 = 400;
/// The same, while the dump of an allocator, which can be long, stands between them.
const SAME_DUMP: u64 = 200_000;
/// A run that goes on for this many lines after a failure has survived it.
const EPISODE: u64 = 5000;
/// Below this certainty the words leave open what it is.
const OPEN: f64 = 0.65;

/// A line of the log, with what stands around it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The line with some 64 KiB before it and some 16 KiB behind it.
    pub window: &'a [u8],
    /// Where the line starts in the window.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// The line's number.
    pub number: u64,
}

impl<'a> Place<'a> {
    fn line(&self) -> &'a [u8] {
        &self.window[self.start..self.end]
    }

    fn before(&self) -> &'a [u8] {
        &self.window[..self.start]
    }

    /// The line and what stands behind it.
    fn from(&self) -> &'a [u8] {
        &self.window[self.start..]
    }

    /// The line above, if there is a whole one.
    fn above(&self) -> Option<Place<'a>> {
        let before = self.before();
        let above = before.strip_suffix(b"\n")?;
        let end = above.strip_suffix(b"\r").unwrap_or(above).len();
        let start = above.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        (start < end).then_some(Place { start, end, number: self.number.checked_sub(1)?, ..*self })
    }

    /// The line below, if anything is in it.
    fn below(&self) -> Option<&'a [u8]> {
        let mut lines = lines_from(self.from(), self.number).map(|(line, _)| line).skip(1);
        lines.find(|line| !line.is_empty())
    }
}

/// A failure as it is put together.
#[derive(Clone)]
struct Draft {
    pattern: &'static Pattern,
    verdict: Verdict,
    certainty: f64,
    facts: Facts,
    backend: Option<String>,
    named: Option<String>,
    era: Option<String>,
    front_end: Option<&'static str>,
    rank: Option<u32>,
    frames: Vec<Frame>,
    causes: Vec<(Cause, f64, String)>,
    survived: bool,
    quoted: bool,
    /// From a cut-off or numberless echo: yields to a message that says more.
    echo: bool,
    times: u64,
    line: u64,
    last_line: u64,
    message: String,
    settings: settings::Collector,
    heap: Option<bfc::Heap>,
}

/// What was read so far.
#[derive(Clone)]
pub(crate) struct Session {
    drafts: Vec<Draft>,
    most: usize,
    left_out: u64,
    heap: bfc::Collector,
    settings: settings::Collector,
    /// The upper one of the two lines across which the last words were found.
    across: Option<u64>,
}

/// What a message was found to say.
struct Found {
    pattern: &'static Pattern,
    reading: Reading,
    paragraph: Paragraph,
}

/// The pattern that reads the most out of the message at a place, with its lines joined by spaces or, where they are of
/// one width, without.
fn best(place: &Place<'_>, candidates: &[&'static Pattern]) -> Option<Found> {
    if candidates.is_empty() {
        return None;
    }
    let lines = || lines_from(place.from(), place.number);
    let mut best: Option<Found> = None;
    let ways = [Some((Paragraph::join(lines()), false)), Paragraph::join_broken(lines())];
    for (paragraph, sure) in ways.into_iter().flatten() {
        let mut read: Option<(f64, &'static Pattern, Reading)> = None;
        for pattern in candidates {
            let Some(reading) = facts::read(pattern, &paragraph) else { continue };
            // More figures say more; between equals the longer match is the more specific one.
            let length = (reading.end - reading.start).min(200) as f64 / 100.0;
            let echo = if pattern.echo { 1.0 } else { 0.0 };
            let score = reading.count.min(12) as f64 + 3.0 * pattern.certainty + length - echo;
            if read.as_ref().is_none_or(|(known, ..)| score > *known) {
                read = Some((score, pattern, reading));
            }
        }
        let Some((_, pattern, reading)) = read else { continue };
        // The second way to join the lines has to tell another figure, or to be plainly the right one.
        let least = usize::from(!sure);
        if best.as_ref().is_none_or(|known| reading.count >= known.reading.count + least) {
            best = Some(Found { pattern, reading, paragraph });
        }
    }
    best
}

impl Session {
    /// Keeps this many failures.
    pub fn new(most: usize) -> Self {
        Self {
            drafts: Vec::new(),
            most: most.max(2),
            left_out: 0,
            heap: bfc::Collector::default(),
            settings: settings::Collector::default(),
            across: None,
        }
    }

    /// Looks at a line that may hold something. Returns whether the costly part (a pattern's evaluation) was needed.
    pub fn look(&mut self, place: &Place<'_>, evaluate: bool) -> bool {
        let candidates = Table::builtin().candidates(place.line());
        let line = text::plain(place.line());
        self.settings.line(&line, place.number);
        if line.contains("bfc_allocator") {
            self.heap.line(&line, place.number);
        }
        if evaluate && let Some(found) = best(place, &candidates) {
            self.message(place, &line, found);
            return true;
        }
        let across = self.look_across(place, evaluate);
        if evaluate && !across && !candidates.is_empty() {
            self.words_alone(place, &line);
        }
        across || !candidates.is_empty()
    }

    /// Looks for words of which one line has the beginning and the next one the rest. Whether there are any.
    fn look_across(&mut self, place: &Place<'_>, evaluate: bool) -> bool {
        let mut found_any = false;
        for upper in [place.above(), Some(*place)].into_iter().flatten() {
            let Some(below) = upper.below() else { continue };
            let candidates = Table::builtin().across(upper.line(), below);
            // What was read once is not read again with the line below.
            if candidates.is_empty() || self.across == Some(upper.number) {
                continue;
            }
            found_any = true;
            if evaluate && let Some(found) = best(&upper, &candidates) {
                self.across = Some(upper.number);
                self.message(&upper, &text::plain(upper.line()), found);
            }
        }
        found_any
    }

    /// A known word in a line that is no known message: worth a note only where it is plainly quoted.
    fn words_alone(&mut self, place: &Place<'_>, line: &str) {
        let candidates = Table::builtin().candidates(place.line());
        let about_memory = candidates.iter().any(|pattern| pattern.verdict == Verdict::GpuOom);
        if !about_memory || quoted::likeness(line, line, true) < 0.54 {
            return;
        }
        let Some(pattern) = candidates.into_iter().find(|pattern| pattern.verdict == Verdict::GpuOom) else { return };
        let draft = self.draft(place, pattern, None, line);
        self.add(Draft { quoted: true, verdict: Verdict::Not(Kind::ConfigurationText), certainty: 0.7, ..draft });
    }

    fn message(&mut self, place: &Place<'_>, line: &str, Found { pattern, reading, paragraph }: Found) {
        let mut verdict = pattern.verdict;
        let figures = reading.count > usize::from(reading.facts.device.is_some());
        let mut certainty = if figures { pattern.certainty } else { pattern.bare };
        if let (Some(signs), Some(without)) = (&pattern.signs, pattern.without_signs) {
            let near = String::from_utf8_lossy(tail(place.before(), 4096));
            if !signs.matches(&paragraph.text) && !signs.matches(&near) {
                verdict = without;
                certainty = 0.5;
            }
        }
        let mut is_quoted = false;
        let may_be_quoted = pattern.verdict == Verdict::GpuOom || pattern.prose;
        if may_be_quoted && !figures && reading.facts.shape.is_none() {
            let around = String::from_utf8_lossy(tail(place.before(), 300)).into_owned() + &paragraph.text;
            let around = &around[..text::floor_boundary(&around, 900)];
            let likeness = quoted::likeness(line, around, pattern.prose);
            if likeness > if pattern.prose { 0.54 } else { 0.85 } {
                is_quoted = true;
            } else {
                certainty *= 1.0 - likeness * if pattern.prose { 0.33 } else { 0.7 };
            }
        }
        let survived = pattern.survived.iter().any(|words| words.matches(&paragraph.text))
            || recovers(&paragraph.text[reading.end.min(paragraph.text.len())..]);
        let message = paragraph.quote(reading.start, reading.end);
        let era = era(pattern, &paragraph.text);
        if is_statistics(pattern) {
            self.heap.statistics(&paragraph.text);
        }
        let mut draft = self.draft(place, pattern, Some(&reading), &message);
        draft.causes = pattern.causes.iter().map(|(cause, weight)| (*cause, *weight, message.clone())).collect();
        draft.facts = reading.facts;
        draft.backend = reading.backend;
        draft.named = reading.named;
        draft.era = era;
        draft.survived = survived;
        draft.verdict = if is_quoted { Verdict::Not(Kind::ConfigurationText) } else { verdict };
        draft.certainty = if is_quoted { 0.7 } else { certainty };
        draft.quoted = is_quoted;
        self.add(draft);
    }

    fn draft(&self, place: &Place<'_>, pattern: &'static Pattern, reading: Option<&Reading>, message: &str) -> Draft {
        let plain = text::plain(place.line());
        let rank = text::rank(&plain);
        let before = lines_before(place.before(), place.number);
        let mut settings = self.settings.clone();
        for (line, number) in &before {
            settings.line(line, *number);
        }
        let mut frames = site::frames(&before, rank);
        if frames.is_empty() && reading.is_some() {
            // Some programs print the message first and the traceback below it.
            let after: Vec<_> = lines_from(place.from(), place.number)
                .take(80)
                .map(|(line, number)| (text::plain(line), number))
                .collect();
            frames = site::frames(&after, rank);
        }
        // The program around it shows in the same lines; a long window would name whoever printed last.
        let near = tail(place.before(), 24 << 10);
        let behind = &place.from()[..place.from().len().min(4 << 10)];
        let front_end =
            front_end::of(behind, &pattern.framework).into_iter().chain(front_end::of(near, &pattern.framework)).next();
        Draft {
            pattern,
            verdict: pattern.verdict,
            certainty: pattern.certainty,
            facts: Facts::default(),
            backend: None,
            named: None,
            era: None,
            front_end,
            rank,
            frames,
            causes: Vec::new(),
            survived: false,
            quoted: false,
            echo: pattern.echo,
            times: 1,
            line: place.number,
            last_line: place.number,
            message: message.to_owned(),
            settings,
            heap: None,
        }
    }

    fn add(&mut self, mut draft: Draft) {
        if is_bfc(draft.pattern) && draft.line.saturating_sub(self.heap.last_line()) < SAME_FAILURE {
            draft.heap = self.heap.take();
        }
        for known in self.drafts.iter_mut().rev().take(24) {
            if known.is_same(&draft) {
                known.merge(draft);
                return;
            }
        }
        if self.drafts.len() >= self.most {
            // The first failures and the last ones are what matters; the middle goes.
            self.left_out += 1;
            self.drafts.remove(self.most / 2);
        }
        self.drafts.push(draft);
    }

    /// The failures so far that would stand in a report, for one who follows a log.
    pub fn count(&self) -> usize {
        self.drafts.iter().filter(|draft| !draft.quoted).count()
    }

    /// The report.
    pub fn report(&mut self, lines: u64, bytes: u64) -> Report {
        let mut drafts = std::mem::take(&mut self.drafts);
        if let (Some(heap), Some(last)) =
            (self.heap.take(), drafts.iter_mut().rev().find(|draft| is_bfc(draft.pattern)))
        {
            last.heap.get_or_insert(heap);
        }
        if drafts.iter().any(|draft| !draft.quoted) {
            drafts.retain(|draft| !draft.quoted);
        } else {
            drafts.truncate(1);
        }
        let order = order(&drafts);
        let mut ranked: Vec<(Order, Draft)> = order.into_iter().zip(drafts).collect();
        ranked.sort_by_key(|(order, _)| *order);
        Report {
            failures: ranked.into_iter().map(|(_, draft)| draft.finish()).collect(),
            settings: self.settings.seen().clone(),
            lines,
            bytes,
            left_out: self.left_out,
        }
    }
}

/// The last bytes of a slice.
fn tail(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(most)..]
}

fn is_bfc(pattern: &Pattern) -> bool {
    matches!(pattern.framework.as_str(), "tensorflow" | "jax")
}

fn is_statistics(pattern: &Pattern) -> bool {
    pattern.id == "tensorflow.bfc-statistics"
}

/// Words behind a message that say that the program went on.
fn recovers(behind: &str) -> bool {
    let behind = &behind[..text::floor_boundary(behind, 400)];
    [
        "retrying with tiled",
        "retrying with",
        "skipping batch",
        "Skipping batch",
        "ran out of memory, skipping",
        "falling back to",
    ]
    .iter()
    .any(|words| behind.contains(words))
}

/// Bytes into lines with their numbers; `\r` redraws a line, so it ends one for the eye but not for the count.
fn lines_from(bytes: &[u8], first: u64) -> impl Iterator<Item = (&[u8], u64)> {
    let mut number = first;
    bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')).map(move |piece| {
        let here = number;
        let line = match piece.last() {
            Some(b'\n') => {
                number += 1;
                &piece[..piece.len() - 1]
            }
            Some(b'\r') => &piece[..piece.len() - 1],
            _ => piece,
        };
        (line, here)
    })
}

/// The last 400 lines before line `number`.
fn lines_before(before: &[u8], number: u64) -> Vec<(String, u64)> {
    let mut lines: Vec<(String, u64)> = Vec::new();
    let mut at = number;
    for piece in before.rsplit(|byte| *byte == b'\n') {
        // The first piece is what stands before the hit in its own line, empty for a whole line.
        lines.push((text::plain(&piece[piece.len().saturating_sub(2000)..]), at));
        at = at.saturating_sub(1);
        if lines.len() > 400 {
            break;
        }
    }
    lines.reverse();
    lines
}

/// The releases of PyTorch that print this form.
///
/// The limits between them were read off the libraries and messages of 2.1, 2.4, 2.6, 2.8, 2.9, 2.11, 2.13 and 2.15.
fn era(pattern: &Pattern, text: &str) -> Option<String> {
    if let Some(era) = &pattern.era {
        return Some(era.clone());
    }
    if pattern.framework != "pytorch" || !pattern.id.starts_with("pytorch.allocator") {
        return None;
    }
    let era = if text.contains("capacty") {
        "2.1"
    } else if text.contains("#optimizing-memory-usage") || text.contains("expandable-segment reserve") {
        "2.10-2.15"
    } else if text.contains("total capacity;") {
        if text.contains(" cached)") {
            "1.0-1.3"
        } else if text.contains("If reserved memory is >>") {
            "1.10-2.0"
        } else if text.contains("reserved in total") {
            "1.4-2.0"
        } else {
            return None;
        }
    } else if text.contains("private pools") || text.contains("torch.OutOfMemoryError") {
        "2.4-2.15"
    } else if text.contains("has a total capacity") {
        if text.contains("torch.cuda.OutOfMemoryError") { "2.2-2.3" } else { "2.2-2.15" }
    } else {
        return None;
    };
    Some(era.to_owned())
}

impl Draft {
    /// Whether another message is about this failure.
    fn is_same(&self, other: &Draft) -> bool {
        let apart = other.line.saturating_sub(self.last_line);
        if self.quoted || other.quoted {
            return self.quoted && other.quoted;
        }
        let ranks_agree = self.rank.is_none() || other.rank.is_none() || self.rank == other.rank;
        if !ranks_agree || !self.facts.agrees_with(&other.facts) {
            return false;
        }
        match (self.verdict, other.verdict) {
            (Verdict::GpuOom, Verdict::GpuOom) => {}
            (Verdict::Not(one), Verdict::Not(another)) if one == another => {}
            // A CUDA handle that cannot be made, or a cuDNN that fails, behind an OOM is its consequence.
            _ => return false,
        }
        let repeated = self.pattern.id == other.pattern.id
            && self.facts.requested_bytes == other.facts.requested_bytes
            && self.facts.free_bytes == other.facts.free_bytes
            && self.facts.allocated_bytes == other.facts.allocated_bytes;
        let dump = is_bfc(self.pattern) && is_bfc(other.pattern);
        apart <= SAME_FAILURE || (dump && apart <= SAME_DUMP && other.heap.is_some()) || (repeated && apart <= EPISODE)
    }

    fn merge(&mut self, other: Draft) {
        self.last_line = other.line;
        let again = self.pattern.id == other.pattern.id && self.facts == other.facts;
        if again || self.pattern.id == other.pattern.id {
            self.times += 1;
        }
        // The words that say more speak for both.
        let better = (self.echo && !other.echo)
            || (other.certainty > self.certainty + 0.05 && self.facts.is_empty())
            || (self.facts.is_empty() && !other.facts.is_empty() && !other.echo && other.certainty >= self.certainty);
        if better {
            self.pattern = other.pattern;
            self.verdict = other.verdict;
            self.message = other.message;
            self.echo = other.echo;
        }
        self.certainty = self.certainty.max(other.certainty);
        self.survived = self.survived && other.survived;
        self.facts.complete_from(other.facts);
        self.backend = self.backend.take().or(other.backend);
        self.named = self.named.take().or(other.named);
        self.era = self.era.take().or(other.era);
        self.front_end = self.front_end.or(other.front_end);
        self.rank = self.rank.or(other.rank);
        if self.frames.is_empty() {
            self.frames = other.frames;
        }
        for cause in other.causes {
            if self.causes.iter().all(|known| known.0 != cause.0) {
                self.causes.push(cause);
            }
        }
        if self.heap.is_none() {
            self.heap = other.heap;
        }
    }

    fn finish(self) -> Failure {
        let is_gpu_oom = self.verdict == Verdict::GpuOom;
        let kind = match self.verdict {
            Verdict::GpuOom => None,
            Verdict::Not(kind) => Some(kind),
        };
        let settings = self.settings.seen().clone();
        let mut framework = Some(self.pattern.framework.clone());
        if kind == Some(Kind::ConfigurationText) {
            framework = Some("config-text".to_owned());
        } else if self.pattern.framework == "host" && self.pattern.id.starts_with("host.cannot") {
            framework = Some("host".to_owned());
        }
        let mut derived = identities::derive(&self.facts, framework.as_deref(), self.era.as_deref());
        derived.heap = self.heap;
        let operation = operation::of_frames(&self.frames)
            .or_else(|| operation::of_message(&self.pattern.id, &self.message, self.named.as_deref()));
        let growth = self.settings.trend.grows().then(|| {
            let (first, first_line) = self.settings.trend.first.unwrap_or_default();
            let (last, last_line) = self.settings.trend.last.unwrap_or_default();
            format!(
                "the memory in use rose step by step from {} (line {first_line}) to {} (line {last_line})",
                size::show(first),
                size::show(last)
            )
        });
        let evidence = Evidence {
            facts: &self.facts,
            derived: &derived,
            kind,
            operation,
            message: &self.message,
            named: &self.causes,
            growth,
            outside_allocator: self.pattern.id.contains("cuda-error") || self.pattern.id == "cuda.driver-error",
        };
        let causes = causes::rank(&evidence);
        let era = match (framework.as_deref(), settings.get("torch")) {
            (Some("pytorch"), Some(version)) if !identities::is_cached_era(self.era.as_deref()) => {
                Some(version.to_owned())
            }
            _ => self.era,
        };
        let mut failure = Failure {
            is_gpu_oom,
            certainty: (self.certainty * 100.0).round() / 100.0,
            not_oom: kind.map(NotOom::from),
            framework,
            backend: self.backend.or_else(|| self.pattern.backend.clone()),
            front_end: self.front_end.map(str::to_owned),
            era,
            rank: self.rank,
            facts: self.facts,
            derived,
            causes,
            site: site::user_site(&self.frames),
            operation,
            remedies: Vec::new(),
            avoid: Vec::new(),
            survived: self.survived,
            times: self.times,
            line: self.line,
            message: self.message,
            pattern: self.pattern.id.clone(),
        };
        remedies::advise(&mut failure, &settings);
        failure
    }
}

/// Sorts a failure among others: the smallest is the root.
type Order = (bool, bool, u64, bool, bool, u64);

/// The root is in the last episode (what a run survived by thousands of lines did not end it), was not caught, is sure,
/// and is no usual consequence of a failure before it; among these the first counts.
fn order(drafts: &[Draft]) -> Vec<Order> {
    let mut lines: Vec<u64> = drafts.iter().map(|draft| draft.line).collect();
    lines.sort_unstable();
    let mut starts = Vec::new();
    let mut before: Option<u64> = None;
    for line in lines {
        if before.is_none_or(|before| line.saturating_sub(before) > EPISODE) {
            starts.push(line);
        }
        before = Some(line);
    }
    let episode = |line: u64| starts.partition_point(|start| *start <= line) as u64;
    let last = starts.len() as u64;
    let first_oom = drafts
        .iter()
        .filter(|draft| draft.verdict == Verdict::GpuOom && draft.certainty >= OPEN)
        .map(|draft| draft.line)
        .min();
    drafts
        .iter()
        .map(|draft| {
            let consequence = draft.verdict != Verdict::GpuOom && first_oom.is_some_and(|first| first <= draft.line);
            (draft.survived, draft.certainty < OPEN, last - episode(draft.line), consequence, draft.echo, draft.line)
        })
        .collect()
}

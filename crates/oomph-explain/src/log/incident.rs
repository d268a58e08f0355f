//! From messages to failures: the same crash is reported many times, by libraries, wrappers, launchers and other ranks.

use super::aftermath::Before;
use super::bfc;
use super::by_form;
use super::draft::{self, Draft, Order, SAME_FAILURE, is_bfc, order};
use super::facts::{self, Reading};
use super::front_end;
use super::kind::Kind;
use super::patterns::{Pattern, Table, Verdict};
use super::place::{Place, lines_before, lines_from, tail};
use super::programs;
use super::quoted;
use super::report::{Facts, Report};
use super::settings;
use super::site;
use super::text::{self, Paragraph};
use super::words;

/// Lines of a message that are weighed by their words.
const WORDS_LINES: usize = 4;
/// Lines above a message in which the program that prints it is looked for.
const LINES_ABOVE: usize = 5;
/// The same, below it: most languages but Python print the stack there.
const LINES_BELOW: usize = 8;
/// Bytes before a message that show what kind of text it is part of.
const WORDS_BEFORE: usize = 1200;
/// Frameworks whose programs end with their work.
const FRAMEWORKS: [&str; 3] = ["pytorch", "tensorflow", "jax"];

/// What was read so far.
#[derive(Clone)]
pub(crate) struct Session {
    drafts: Vec<Draft>,
    /// The first line with CUDA's words that names nobody; it counts where the log shows no failure.
    of_nobody: Option<Draft>,
    most: usize,
    left_out: u64,
    heap: bfc::Collector,
    settings: settings::Collector,
    /// The upper one of the two lines across which the last words were found.
    across: Option<u64>,
}

/// What the words of a line came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weighed {
    /// None of them speaks of exhaustion.
    NoWords,
    /// They were weighed and say nothing.
    Nothing,
    /// A failure.
    Found,
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
            of_nobody: None,
            most: most.max(2),
            left_out: 0,
            heap: bfc::Collector::default(),
            settings: settings::Collector::default(),
            across: None,
        }
    }

    /// Looks at a line that may hold something. Returns whether the costly part (a pattern's evaluation) was needed.
    pub fn look(&mut self, place: &Place<'_>, evaluate: bool) -> bool {
        let line = text::plain(place.line());
        let candidates = Table::builtin().candidates(line.as_bytes());
        self.settings.line(&line, place.number);
        if line.contains("bfc_allocator") {
            self.heap.line(&line, place.number);
        }
        if evaluate && let Some(found) = best(place, &candidates) {
            self.message(place, &line, found);
            return true;
        }
        let across = self.look_across(place, evaluate);
        if !evaluate || across {
            return across || !candidates.is_empty();
        }
        match self.by_words(place, &line) {
            Weighed::Found => true,
            weighed => {
                let quoted = !candidates.is_empty() && self.words_alone(place, &line);
                quoted || weighed == Weighed::Nothing || !candidates.is_empty()
            }
        }
    }

    /// Weighs the words of a line that no pattern reads.
    fn by_words(&mut self, place: &Place<'_>, line: &str) -> Weighed {
        if !words::are_there(line) {
            return Weighed::NoWords;
        }
        let message = Paragraph::join(lines_from(place.from(), place.number).take(WORDS_LINES));
        let around = String::from_utf8_lossy(tail(place.before(), WORDS_BEFORE)).into_owned();
        if quoted::documents(&around, &message.text) {
            return Weighed::Nothing;
        }
        let read = words::read(line, &message.text, &around, place.number);
        let alone = read.is_none();
        let Some(found) = read.or_else(|| words::of_nobody(line)) else { return Weighed::Nothing };
        let quote = message.quote(0, message.first_line.max(1).min(message.text.len()));
        let draft = self.draft(place, found.pattern, None, &quote);
        let draft = Draft { verdict: found.verdict, certainty: found.certainty, facts: found.facts, ..draft };
        if alone {
            self.of_nobody.get_or_insert(draft);
            return Weighed::Nothing;
        }
        self.add(draft);
        Weighed::Found
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

    /// A known word in a line without a known message: worth a note only where it is plainly quoted. Whether it is.
    fn words_alone(&mut self, place: &Place<'_>, line: &str) -> bool {
        let candidates = Table::builtin().candidates(line.as_bytes());
        let about_memory = candidates.iter().any(|pattern| pattern.verdict == Verdict::GpuOom);
        if !about_memory || quoted::likeness(line, line, true) < 0.54 {
            return false;
        }
        let Some(pattern) = candidates.into_iter().find(|pattern| pattern.verdict == Verdict::GpuOom) else {
            return false;
        };
        let draft = self.draft(place, pattern, None, line);
        self.add(Draft { quoted: true, verdict: Verdict::Not(Kind::ConfigurationText), certainty: 0.7, ..draft });
        true
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
        if may_be_quoted && !is_quoted {
            let before = String::from_utf8_lossy(tail(place.before(), WORDS_BEFORE));
            let behind = &paragraph.text[..text::floor_boundary(&paragraph.text, 1600)];
            is_quoted = quoted::documents(&before, behind);
        }
        let survived = pattern.survived.iter().any(|words| words.matches(&paragraph.text))
            || recovers(&paragraph.text[reading.end.min(paragraph.text.len())..]);
        let message = paragraph.quote(reading.start, reading.end);
        let era = era(pattern, &paragraph.text);
        if is_statistics(pattern) {
            self.heap.statistics(&paragraph.text);
        }
        let mut draft = self.draft(place, pattern, Some(&reading), &message);
        draft.runtime = draft::runtime(line);
        draft.causes = pattern.causes.iter().map(|(cause, weight)| (*cause, *weight, message.clone())).collect();
        draft.facts = reading.facts;
        if verdict == Verdict::GpuOom && !figures && programs::is_interface(&pattern.framework) {
            let message = Paragraph::join(lines_from(place.from(), place.number).take(WORDS_LINES));
            draft.facts.complete_from(words::figures(&message.text, place.number));
            if words::of_host_call(&message.text) {
                verdict = Verdict::Not(Kind::HostMemory);
            }
        }
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
        let front_end = front_end::around(behind, near, &pattern.framework);
        let above: Vec<&str> = before.iter().rev().take(LINES_ABOVE).map(|(line, _)| line.as_str()).collect();
        let below = Paragraph::join(lines_from(place.from(), place.number).skip(1).take(LINES_BELOW));
        let library = words::of_api(pattern, &[&plain, message, &above.join("\n"), &below.text]);
        let of_interface = library.is_none() && programs::is_interface(&pattern.framework);
        let by_form = by_form::package(&frames, &pattern.framework)
            .or_else(|| of_interface.then(|| by_form::program(&plain, message, &above)).flatten());
        Draft {
            pattern,
            verdict: pattern.verdict,
            certainty: pattern.certainty,
            facts: Facts::default(),
            backend: None,
            named: None,
            era: None,
            runtime: None,
            library,
            front_end,
            by_form,
            rank,
            frames,
            causes: Vec::new(),
            survived: false,
            before: Before::of(&before[..before.len().saturating_sub(1)], &plain),
            quoted: false,
            echo: pattern.echo,
            times: 1,
            line: place.number,
            last_line: place.number,
            message: message.to_owned(),
            settings,
            heap: None,
            limit_of_compiler: pattern.id == "jax.rematerialization",
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

    /// The failures so far that a report would contain, for one who follows a log.
    pub fn count(&self) -> usize {
        self.drafts.iter().filter(|draft| !draft.quoted).count()
    }

    /// Takes the end of the log, of which `first` is the number of the first line: a program that went on to a normal end has
    /// survived what it reported itself. What starts others, or serves them, goes on in any case.
    pub fn end(&mut self, tail: &str, first: u64) {
        let Some(last) = self.drafts.iter().filter(|draft| !draft.quoted).map(|draft| draft.last_line).max() else {
            return;
        };
        let of_gpu = |draft: &Draft| draft.verdict == Verdict::GpuOom || draft.quoted;
        let is_plain =
            |draft: &Draft| draft.front_end.is_none() && FRAMEWORKS.contains(&draft.pattern.framework.as_str());
        if !self.drafts.iter().all(|draft| of_gpu(draft) && (draft.quoted || is_plain(draft))) {
            return;
        }
        let skipped = usize::try_from((last + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let after = tail.split_inclusive('\n').skip(skipped).collect::<String>();
        // Of several errors the last one decides: what came before it was survived at least so far.
        let decides = self.drafts.iter().filter(|draft| !draft.quoted).max_by_key(|draft| draft.last_line);
        // Other ranks go on for a while after one has died.
        if decides.is_some_and(|draft| draft.rank.is_none() && draft.before.goes_on(&after)) {
            self.drafts.iter_mut().filter(|draft| !draft.before.is_elsewhere()).for_each(|draft| draft.survived = true);
        }
    }

    /// The report.
    pub fn report(&mut self, lines: u64, bytes: u64) -> Report {
        let mut drafts = std::mem::take(&mut self.drafts);
        if drafts.is_empty() {
            drafts.extend(self.of_nobody.take());
        }
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

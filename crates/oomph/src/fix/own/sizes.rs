//! Smaller values of the sizes that a program writes down: its options, words and constants.

use std::collections::VecDeque;

use oomph_edit::{Size, is_size};
use oomph_report::ResultChange;

use super::{Idea, Search};
use crate::changes::Changes;
use crate::source_lines::source_line;

/// By how much a size is divided, one after the other.
const DIVISORS: [u64; 10] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Where a size is written.
#[derive(Clone)]
pub(super) enum Written {
    /// In a Python program or among its options.
    InProgram(Size),
    /// A word of another command: its place and what it is called.
    Word(usize, String),
}

/// A size with the value that is tried, and the one that it has.
#[derive(Clone)]
pub(super) struct Sized {
    pub(super) written: Written,
    pub(super) value: u64,
    pub(super) old: u64,
}

impl Search<'_> {
    /// Smaller values of the sizes that the program writes down, a series for each: first those that leave the result as it
    /// is, then the others.
    pub(super) fn sizes(&self) -> (Vec<Vec<Idea>>, Vec<Vec<Idea>>) {
        let (mut same, mut others) = (Vec::new(), Vec::new());
        for (written, old, keeps) in self.written_sizes() {
            let at = |value| Sized { written: written.clone(), value, old };
            let list = if keeps { &mut same } else { &mut others };
            list.push(smaller(old).filter_map(|value| self.resized(&at(old), value)).collect());
        }
        (same, others)
    }

    /// Less data, a series for each amount of it that the program writes down, and then a smaller model. Batches have remedies
    /// of their own.
    pub(super) fn less_work(&self) -> Vec<Vec<Idea>> {
        let Some(edits) = &self.applier.edits else { return Vec::new() };
        let series = |mut size: Size| {
            // How much there is of it is part of what the program answers.
            size.keeps_the_result = size.is_at_a_time();
            let old = size.value;
            let at = Sized { written: Written::InProgram(size), value: old, old };
            much_smaller(old).filter_map(|value| self.resized(&at, value)).collect()
        };
        let mut amounts = edits.program.amounts();
        // An option of the evaluation has to do with an evaluation that dies, and one of the training has not.
        let lines = self.dying_lines();
        amounts.sort_by_key(|size| !lines.iter().any(|line| speaks_of(line, &size.name)));
        amounts.into_iter().map(series).collect()
    }

    /// What is tried of a size that the program does not take: half and a quarter of what it has, where it is smaller.
    pub(super) fn gentler(&self, failed: &Sized) -> VecDeque<Idea> {
        let values = DIVISORS.iter().take(2).map(|divisor| failed.old / divisor).filter(|value| *value > failed.value);
        values.filter_map(|value| self.resized(failed, value)).collect()
    }

    /// The lines of the program that ran out of memory, and the functions that they are in.
    fn dying_lines(&self) -> Vec<String> {
        let sites = self.before.devices.iter().filter_map(|device| device.oom.as_ref()?.site.as_ref());
        let lines = sites.flat_map(|site| [source_line(self.directory, site), Some(site.function.clone())]);
        lines.flatten().collect()
    }

    /// The sizes with their values, and whether the result is the same with a smaller one.
    fn written_sizes(&self) -> Vec<(Written, u64, bool)> {
        match &self.applier.edits {
            Some(edits) => {
                let sizes = edits.program.sizes().into_iter();
                let is_new = |size: &Size| !self.found.iter().any(|remedy| size.is_of(remedy));
                sizes
                    .filter(is_new)
                    .map(|size| (Written::InProgram(size.clone()), size.value, size.keeps_the_result))
                    .collect()
            }
            None => {
                let words = self.words().into_iter();
                words.map(|(place, name, value)| (Written::Word(place, name), value, false)).collect()
            }
        }
    }

    /// The program with another value of a size.
    pub(super) fn resized(&self, size: &Sized, value: u64) -> Option<Idea> {
        let remedy = self.remedy("smaller-size")?;
        let (name, changes, program, result) = match &size.written {
            Written::InProgram(written) => {
                let before = &self.applier.edits.as_ref()?.program;
                let program = before.with_size(written, value).ok()?;
                let keeps = written.keeps_the_result;
                let result = if keeps { ResultChange::Equivalent } else { ResultChange::Changed };
                let changes = self.with(&program);
                let name = written.name.rsplit('.').next().unwrap_or(&written.name).to_owned();
                (name, changes, (!written.is_typed()).then_some(program), result)
            }
            Written::Word(place, name) => (name.clone(), self.retyped(*place, value), None, ResultChange::Changed),
        };
        let old = match &size.written {
            Written::InProgram(Size { word: Some(word), .. }) => (*word).to_owned(),
            _ => size.old.to_string(),
        };
        let colon = if name.contains(' ') { ":" } else { "" };
        Some(Idea {
            name: remedy.id.clone(),
            title: format!("{name}{colon} {value} instead of {old}"),
            changes,
            program,
            size: Some(Sized { value, ..size.clone() }),
            by_hand: None,
            result,
            evidence: format!("it ran with {name} {value}"),
            notes: Vec::new(),
        })
    }

    /// The command with another number as one of its words.
    fn retyped(&self, place: usize, value: u64) -> Changes {
        let mut changes = Changes::none(self.applier.command);
        if let Some(word) = changes.command.get_mut(place) {
            let text = word.to_string_lossy().into_owned();
            *word = match text.split_once('=') {
                Some((flag, _)) => format!("{flag}={value}").into(),
                None => value.to_string().into(),
            };
        }
        changes
    }

    /// The whole numbers on the command line that may be sizes: the word's place, what it is called, and its value.
    fn words(&self) -> Vec<(usize, String, u64)> {
        let words: Vec<String> = self.applier.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut found = Vec::new();
        for (place, word) in words.iter().enumerate().skip(1) {
            let flag = words[place - 1].as_str();
            let (name, value) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with('-') => (flag.to_owned(), value),
                _ if flag.starts_with('-') && flag.len() > 1 && place > 1 => (flag.to_owned(), word.as_str()),
                _ => (format!("argument {place}"), word.as_str()),
            };
            let is_named = !name.starts_with('-') || is_size(&name);
            if let Some(value) = value.parse().ok().filter(|value| *value > 1 && is_named) {
                found.push((place, name, value));
            }
        }
        found
    }
}

/// The values that are tried in the place of a size.
fn smaller(value: u64) -> impl Iterator<Item = u64> {
    DIVISORS.into_iter().map(move |divisor| value / divisor).take_while(|value| *value > 0)
}

/// The values that are tried first of what may have nothing to do with the memory: where the first is without effect, no other
/// is tried, and of one that fits larger ones are.
fn much_smaller(value: u64) -> impl Iterator<Item = u64> {
    let (much, most) = ((value / 16).max(1), (value / 256).max(1));
    [Some(much), (most < much).then_some(most)].into_iter().flatten().filter(move |smaller| *smaller < value)
}

impl Sized {
    /// A value that is known to be too large where this one is tried first.
    pub(super) fn too_large(&self) -> Option<u64> {
        (self.value < self.old / 2).then_some(self.old)
    }
}

/// Parts of the names of sizes that say nothing of what is meant.
const GENERAL: &[&str] = &["max", "min", "num", "len", "length", "size", "count", "dim", "step", "steps"];

/// Whether a line of a program has a word in it that is part of a size's name: `losses = eval_step(batch)` of `--eval-len`.
fn speaks_of(line: &str, name: &str) -> bool {
    fn words(text: &str) -> impl Iterator<Item = String> {
        text.split(|letter: char| !letter.is_ascii_alphanumeric()).map(str::to_ascii_lowercase)
    }
    words(name)
        .filter(|word| word.len() > 2 && !GENERAL.contains(&word.as_str()))
        .any(|part| words(line).any(|word| word == part))
}

/// A value between two, round where both are large.
pub(super) fn between(low: u64, high: u64) -> u64 {
    let middle = low + high.saturating_sub(low) / 2;
    if low >= 1024 { middle / 256 * 256 } else { middle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_of_the_line_that_has_its_word() {
        let line = "losses = [float(eval_step(lora, base, doc[None])) for doc in documents]";
        assert!(speaks_of(line, "--eval-len") && !speaks_of(line, "--seq-len"));
        assert!(speaks_of("main", "--main-width") && !speaks_of("size = len(steps)", "--max-len-size"));
    }

    #[test]
    fn sizes_are_halved_and_then_refined() {
        assert_eq!(smaller(20).collect::<Vec<_>>(), [10, 5, 2, 1]);
        assert_eq!(much_smaller(4000).collect::<Vec<_>>(), [250, 15]);
        assert_eq!((much_smaller(6).collect::<Vec<_>>(), much_smaller(1).count()), (vec![1], 0));
        assert_eq!((between(6, 12), between(4096, 8192), between(18, 37)), (9, 6144, 27));
        assert_eq!(between(1, 2), 1);
    }
}

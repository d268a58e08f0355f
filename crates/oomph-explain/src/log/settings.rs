//! What a log says about the run before it failed: `settings.toml`, and the memory figures that some programs print.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;
use serde::Deserialize;

use super::report::{RunSettings, Setting};
use super::size;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    setting: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    words: Vec<String>,
    value: String,
    #[cfg_attr(not(test), allow(dead_code))]
    example: String,
    #[cfg_attr(not(test), allow(dead_code))]
    is: String,
}

struct Known {
    name: &'static str,
    value: Regex,
}

struct Table {
    known: Vec<Known>,
    owners: Vec<Vec<usize>>,
    finder: AhoCorasick,
    trend: Regex,
}

/// Words before a figure of the memory that a program holds at a step.
const TREND_WORDS: &[&str] =
    &["mem_allocated", "memory_allocated", "max_mem", "max mem", "memory allocated", "GPU mem"];

static TABLE: LazyLock<Option<Table>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("settings.toml")).ok()?;
    let (mut known, mut words, mut owners) = (Vec::new(), Vec::<String>::new(), Vec::<Vec<usize>>::new());
    for entry in file.setting {
        for word in entry.words {
            match words.iter().position(|seen| *seen == word) {
                Some(place) => owners[place].push(known.len()),
                None => {
                    words.push(word);
                    owners.push(vec![known.len()]);
                }
            }
        }
        // The table is loaded once and lives as long as the program.
        known.push(Known { name: String::leak(entry.name), value: Regex::new(&entry.value).ok()? });
    }
    for word in TREND_WORDS {
        words.push((*word).to_owned());
        owners.push(Vec::new());
    }
    let finder = AhoCorasick::new(&words).ok()?;
    let trend = Regex::new(&format!(
        r"(?i)\b(?:(?:max_)?mem(?:ory)?_allocated|max[_ ]mem|memory allocated|gpu mem)[=:]? *(?P<value>{}|\d+)",
        size::PATTERN
    ))
    .ok()?;
    Some(Table { known, owners, finder, trend })
});

/// The next place of a word that lines with settings have.
pub(crate) fn find(bytes: &[u8]) -> Option<usize> {
    TABLE.as_ref()?.finder.find(bytes).map(|found| found.start())
}

/// Settings collected line by line.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    seen: RunSettings,
    /// The last line that said something.
    last_line: u64,
    /// The memory that the program says it holds: first, last and largest figure, how many, how many rose.
    pub trend: Trend,
}

/// How the memory that a program prints develops.
#[derive(Clone, Default)]
pub(crate) struct Trend {
    /// The first figure and its line.
    pub first: Option<(u64, u64)>,
    /// The last figure and its line.
    pub last: Option<(u64, u64)>,
    /// Figures that were above the one before.
    pub rises: u64,
    /// Figures in all.
    pub count: u64,
}

impl Trend {
    fn take(&mut self, bytes: u64, line: u64) {
        if let Some((before, _)) = self.last {
            self.rises += u64::from(bytes > before);
        }
        self.first.get_or_insert((bytes, line));
        self.last = Some((bytes, line));
        self.count += 1;
    }

    /// Whether memory grew at every step, and by a fifth at least: what a leak looks like, and a warm-up does not.
    pub fn grows(&self) -> bool {
        match (self.first, self.last) {
            (Some((first, _)), Some((last, _))) => {
                self.count >= 3 && self.rises + 1 >= self.count * 9 / 10 && last > first.saturating_add(first / 5)
            }
            _ => false,
        }
    }
}

impl Collector {
    /// Takes a line, and keeps what it says; a line that was taken already changes nothing.
    pub fn line(&mut self, line: &str, number: u64) {
        let Some(table) = TABLE.as_ref() else { return };
        if number <= self.last_line {
            return;
        }
        let mut tried = 0u64;
        for hit in table.finder.find_overlapping_iter(line) {
            let owners = &table.owners[hit.pattern().as_usize()];
            self.last_line = number;
            if owners.is_empty() {
                if let Some(figure) = table.trend.captures(line).and_then(|captures| size::parse(&captures["value"])) {
                    self.trend.take(figure, number);
                }
                continue;
            }
            for owner in owners {
                let bit = 1u64 << (owner % 64);
                if tried & bit != 0 {
                    continue;
                }
                tried |= bit;
                let known = &table.known[*owner];
                let Some(captures) = known.value.captures(line) else { continue };
                let Some(value) = captures.name("value").or_else(|| captures.name("value2")) else { continue };
                let value: String = value.as_str().chars().take(80).collect();
                self.seen.seen.insert(known.name, Setting { value, line: number });
            }
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> &RunSettings {
        &self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reads_its_example() {
        let file: File = toml::from_str(include_str!("settings.toml")).unwrap();
        assert!(TABLE.is_some());
        assert!(file.setting.len() <= 64, "`tried` has 64 bits");
        for entry in file.setting {
            let mut collector = Collector::default();
            collector.line(&entry.example, 3);
            assert_eq!(collector.seen().get(&entry.name), Some(entry.is.as_str()), "{}", entry.name);
        }
    }

    #[test]
    fn the_last_word_wins_and_a_rise_is_seen() {
        let mut collector = Collector::default();
        collector.line("max_model_len=4096", 1);
        collector.line("max_model_len=8192", 2);
        assert_eq!(collector.seen().number("context_length"), Some(8192));
        for (step, mib) in [2939, 3044, 3601, 5268].into_iter().enumerate() {
            collector.line(&format!("Epoch [{step}] mem_allocated: {mib} MB mem_reserved: 8822 MB"), step as u64 + 3);
        }
        assert!(collector.trend.grows());
        assert_eq!(collector.trend.first, Some((2939 << 20, 3)));
    }
}

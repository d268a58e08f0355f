//! The one table of messages: `patterns/*.toml`, a file for each family of frameworks.
//!
//! A pattern has *anchors* (literal words, by which a line is noticed at all), a *head* (a regular expression that must
//! match from the line that has the anchor) and *details* (further expressions, searched behind the head). Named groups
//! are typed by their names: `requested`, `capacity` and the like are figures with a unit, `..._gib` a plain number in
//! GiB, `device` a number. A digit at the end of a name only keeps names in one expression apart. `{size}` stands for a
//! figure with its unit.

use std::ops::RangeInclusive;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use oomph_remedy::Cause;
use regex::Regex;
use serde::Deserialize;

use super::kind::Kind;
use super::size;
use super::{text, wrapping};

const FILES: &[&str] = &[
    include_str!("patterns/pytorch.toml"),
    include_str!("patterns/tensorflow.toml"),
    include_str!("patterns/inference.toml"),
    include_str!("patterns/ggml.toml"),
    include_str!("patterns/compute.toml"),
    include_str!("patterns/host.toml"),
];

/// Bytes at the end of a line and at the start of the next that can hold the two parts of an anchor.
const SEAM: usize = 160;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Verdict {
    /// Memory of a GPU ran out.
    GpuOom,
    /// Something else, often mistaken for it.
    Not(Kind),
}

impl TryFrom<String> for Verdict {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        match word.as_str() {
            "gpu-oom" => Ok(Self::GpuOom),
            other => Kind::from_id(other).map(Self::Not).ok_or_else(|| format!("`{other}` is not a kind of failure")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    framework: String,
    pattern: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    is: Verdict,
    anchors: Vec<String>,
    head: String,
    #[serde(default)]
    details: Vec<String>,
    framework: Option<String>,
    backend: Option<String>,
    era: Option<String>,
    certainty: Option<f64>,
    bare: Option<f64>,
    #[serde(default)]
    prose: bool,
    #[serde(default)]
    echo: bool,
    #[serde(default)]
    line_only: bool,
    unless: Option<String>,
    needs: Option<String>,
    signs: Option<String>,
    without_signs: Option<Verdict>,
    #[serde(default)]
    survived: Vec<String>,
    #[serde(default)]
    causes: Vec<(Cause, f64)>,
    #[cfg_attr(not(test), allow(dead_code))]
    example: String,
    #[serde(default)]
    #[cfg_attr(not(test), allow(dead_code))]
    facts: std::collections::BTreeMap<String, u64>,
}

/// A message that is known.
pub(crate) struct Pattern {
    /// `framework.message`, unique.
    pub id: String,
    /// What the message says.
    pub verdict: Verdict,
    /// Whose words these are.
    pub framework: String,
    /// The back end that they belong to, where the words alone say so.
    pub backend: Option<String>,
    /// The era of the framework, where the words alone say so.
    pub era: Option<String>,
    /// How sure the verdict is, 0 to 1, given these words.
    pub certainty: f64,
    /// The same where no figure follows.
    pub bare: f64,
    /// The words also occur in scripts and prose, so that figures or an error's form are needed.
    pub prose: bool,
    /// The message follows another that says more.
    pub echo: bool,
    /// What the certainty falls back to without [`Pattern::signs`].
    pub without_signs: Option<Verdict>,
    /// Causes that the words themselves name, with a confidence.
    pub causes: Vec<(Cause, f64)>,
    /// The head must lie in the first line, and may use its end.
    pub line_only: bool,
    /// The expression that must match.
    pub head: Expression,
    /// Expressions that may match behind it.
    pub details: Vec<Expression>,
    /// The message is something else if this matches.
    pub unless: Option<Expression>,
    /// The message is something else unless this matches.
    pub needs: Option<Expression>,
    /// A sign that the message is about a GPU, in the message or around it.
    pub signs: Option<Expression>,
    /// The program went on if one of these matches.
    pub survived: Vec<Expression>,
    #[cfg(test)]
    pub example: String,
    #[cfg(test)]
    pub facts: std::collections::BTreeMap<String, u64>,
}

/// A regular expression that is compiled when it is first needed: a log meets few of the patterns.
pub(crate) struct Expression {
    source: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Expression {
    fn new(source: &str) -> Self {
        Self { source: source.replace("{size}", size::PATTERN), compiled: OnceLock::new() }
    }

    /// The expression; None if it cannot be compiled, which a test rules out.
    pub fn regex(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| Regex::new(&self.source).ok()).as_ref()
    }

    /// Whether it matches somewhere.
    pub fn matches(&self, text: &str) -> bool {
        self.regex().is_some_and(|regex| regex.is_match(text))
    }
}

/// All patterns, with the automaton that finds their anchors.
pub(crate) struct Table {
    patterns: Vec<Pattern>,
    anchors: AhoCorasick,
    /// Which patterns an anchor belongs to.
    owners: Vec<Vec<usize>>,
    #[cfg(test)]
    words: Vec<String>,
}

static TABLE: LazyLock<Result<Table, String>> = LazyLock::new(Table::load);

impl Table {
    /// The built-in table.
    ///
    /// The data is part of the program and a test loads it, so that an error here is an error of the build; the table is
    /// then empty and nothing is recognised.
    pub fn builtin() -> &'static Table {
        static EMPTY: LazyLock<Table> = LazyLock::new(Table::empty);
        TABLE.as_ref().unwrap_or_else(|_| &EMPTY)
    }

    fn empty() -> Self {
        // An automaton of no words cannot exceed any limit.
        let anchors = AhoCorasick::new(Vec::<&str>::new()).unwrap_or_else(|_| unreachable!("no words, no states"));
        Self {
            patterns: Vec::new(),
            anchors,
            owners: Vec::new(),
            #[cfg(test)]
            words: Vec::new(),
        }
    }

    fn load() -> Result<Self, String> {
        let mut patterns = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut owners: Vec<Vec<usize>> = Vec::new();
        for file in FILES {
            let file: File = toml::from_str(file).map_err(|error| error.to_string())?;
            for entry in file.pattern {
                for word in &entry.anchors {
                    match words.iter().position(|known| known == word) {
                        Some(place) => owners[place].push(patterns.len()),
                        None => {
                            words.push(word.clone());
                            owners.push(vec![patterns.len()]);
                        }
                    }
                }
                patterns.push(Pattern::from_entry(entry, &file.framework));
            }
        }
        let anchors =
            AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(&words).map_err(|error| error.to_string())?;
        Ok(Self {
            patterns,
            anchors,
            owners,
            #[cfg(test)]
            words,
        })
    }

    /// Every pattern.
    #[cfg(test)]
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The words by which lines are noticed.
    #[cfg(test)]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The patterns whose anchors a line holds, in the order of the table.
    pub fn candidates(&self, line: &[u8]) -> Vec<&Pattern> {
        self.around(line, 0..=usize::MAX)
    }

    /// The patterns of which an anchor begins in one line and ends in the next, whether the lines were broken between
    /// words or within one.
    pub fn across(&self, line: &[u8], next: &[u8]) -> Vec<&Pattern> {
        let line = whole(line).unwrap_or_else(|| {
            wrapping::without_edge(&text::plain(&line[line.len().saturating_sub(SEAM)..])).to_owned()
        });
        let next = whole(next).unwrap_or_else(|| text::plain(&next[..next.len().min(SEAM)]));
        let next = text::without_prefix(wrapping::behind_bar(&next));
        let line = line.trim_end();
        for seam in [" ", ""] {
            let found = self.around(format!("{line}{seam}{next}").as_bytes(), line.len()..=line.len() + seam.len());
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// The patterns whose anchors a text holds over some place of a range.
    fn around(&self, text: &[u8], places: RangeInclusive<usize>) -> Vec<&Pattern> {
        let mut found = Vec::new();
        for hit in self.anchors.find_overlapping_iter(text) {
            if hit.start() >= *places.end() || hit.end() <= *places.start() {
                continue;
            }
            for owner in &self.owners[hit.pattern().as_usize()] {
                if !found.contains(owner) {
                    found.push(*owner);
                }
            }
            if found.len() > 32 {
                break;
            }
        }
        found.sort_unstable();
        found.into_iter().map(|index| &self.patterns[index]).collect()
    }
}

/// The text of a line that is an object of JSON.
fn whole(line: &[u8]) -> Option<String> {
    if line.first() != Some(&b'{') { None } else { wrapping::text_of_object(&text::plain(line)) }
}

impl Pattern {
    /// Stands for a message that is read by its words: it matches nothing itself.
    pub fn of_words(framework: &str, verdict: Verdict, certainty: f64) -> Self {
        let kind = match verdict {
            Verdict::GpuOom => "gpu-oom",
            Verdict::Not(kind) => kind.id(),
        };
        Self {
            id: format!("words.{framework}.{kind}"),
            verdict,
            framework: framework.to_owned(),
            backend: None,
            era: None,
            certainty,
            bare: certainty,
            prose: true,
            echo: true,
            without_signs: None,
            causes: Vec::new(),
            line_only: true,
            head: Expression::new("$^"),
            details: Vec::new(),
            unless: None,
            needs: None,
            signs: None,
            survived: Vec::new(),
            #[cfg(test)]
            example: String::new(),
            #[cfg(test)]
            facts: std::collections::BTreeMap::new(),
        }
    }

    /// Whether it stands for what was read by its words.
    pub fn is_words(&self) -> bool {
        self.id.starts_with("words.")
    }

    fn from_entry(entry: Entry, framework: &str) -> Self {
        let certainty = entry.certainty.unwrap_or(0.97);
        Self {
            verdict: entry.is,
            framework: entry.framework.unwrap_or_else(|| framework.to_owned()),
            backend: entry.backend,
            era: entry.era,
            certainty,
            bare: entry.bare.unwrap_or(certainty),
            prose: entry.prose,
            echo: entry.echo,
            without_signs: entry.without_signs,
            causes: entry.causes,
            line_only: entry.line_only,
            head: Expression::new(&entry.head),
            details: entry.details.iter().map(|detail| Expression::new(detail)).collect(),
            unless: entry.unless.as_deref().map(Expression::new),
            needs: entry.needs.as_deref().map(Expression::new),
            signs: entry.signs.as_deref().map(Expression::new),
            survived: entry.survived.iter().map(|words| Expression::new(words)).collect(),
            id: entry.id,
            #[cfg(test)]
            example: entry.example,
            #[cfg(test)]
            facts: entry.facts,
        }
    }
}

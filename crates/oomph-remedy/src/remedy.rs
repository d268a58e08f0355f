//! Defines a remedy: the entries of `data/*.toml`.

use serde::{Deserialize, Serialize};

use crate::condition::{Fact, When};
use crate::effect::Formula;
use crate::framework::{Framework, Reach, Version};
use crate::situation::{Installed, Operation, OwnerGroup, Situation};
use crate::words;

/// One way to need less memory, or to have more of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remedy {
    /// Its name in the catalogue, in lower case with hyphens.
    pub id: String,
    /// A few words for a table.
    pub title: String,
    /// What it changes, in one sentence.
    pub changes: String,
    /// Why it helps where it is offered: a clause that can follow "because".
    pub because: String,
    /// Whether the result stays the same.
    pub sameness: Sameness,
    /// What it costs in time.
    pub time: TimeCost,
    /// What it costs in quality.
    #[serde(default)]
    pub quality: Option<QualityCost>,
    /// When it can help.
    pub when: When,
    /// The operations that it was made for: where one of them fails, it comes first.
    #[serde(default)]
    pub aims: Vec<Operation>,
    /// What is left of the failing request, as a share, where the operation is one that it was made for.
    #[serde(default)]
    pub request_keeps: Option<f64>,
    /// What it does to each owner that it changes.
    pub effects: Vec<Effect>,
    /// The frameworks that do it by themselves.
    #[serde(default)]
    pub defaults: Vec<ByDefault>,
    /// What shows that a program uses it already: one of these.
    #[serde(default)]
    pub shown_by: Vec<Shown>,
    /// Remedies that cannot be used together with it, or that do the same.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// The package without which its options and its code are errors.
    #[serde(default)]
    pub package: Option<String>,
    /// How much of it is taken, where that can be chosen.
    #[serde(default)]
    pub knob: Option<Knob>,
    /// How a dry run applies it.
    pub dry_run: DryRun,
    /// How it is written for each framework.
    pub written: Vec<Written>,
    /// What the user should know before using it.
    #[serde(default)]
    pub note: Option<String>,
    /// What users of one framework should know as well.
    #[serde(default)]
    pub asides: Vec<Aside>,
    /// What may keep it from saving anything: said until a run has shown what it saves. `machine` stands for everybody.
    #[serde(default)]
    pub doubts: Vec<Aside>,
}

/// What a program was seen to be, as far as it shows that a remedy is in effect. The words are those of
/// [`crate::Seen`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// All of these were seen.
    pub all: Vec<String>,
    /// None of these was.
    #[serde(default)]
    pub none: Vec<String>,
}

/// A sentence for the users of one framework.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aside {
    /// The framework.
    #[serde(rename = "in")]
    pub framework: Framework,
    /// The sentence.
    pub text: String,
}

/// Whether a remedy changes what the program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Sameness {
    /// The same numbers.
    Exact,
    /// The same mathematics in another order: numbers differ by rounding.
    Equivalent,
    /// Another method with nearly the same result.
    Approximate,
    /// Another result: another model, length, size or product.
    ChangesTheResult,
}

/// How much longer the program takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TimeClass {
    /// Not longer, or less long.
    None,
    /// Up to a tenth longer.
    Small,
    /// Up to a half longer.
    Moderate,
    /// More than that.
    Large,
}

/// What a remedy costs in time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeCost {
    /// How much.
    pub class: TimeClass,
    /// In words, with figures where somebody measured them.
    pub text: String,
    /// Who says so.
    pub source: String,
}

/// What a remedy costs in quality.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QualityCost {
    /// In words.
    pub text: String,
    /// Who says so.
    pub source: String,
    /// Where only some programs pay it: what is true of them for certain.
    #[serde(default)]
    pub certain: Option<Fact>,
    /// Whether training may end worse for it: a search takes it after what published comparisons call equal.
    #[serde(default)]
    pub risky: bool,
}

/// What a remedy does to the bytes of one owner: a share that is left, a formula, or bytes that it adds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Whose bytes.
    pub owner: OwnerGroup,
    /// The share that is left, for example 0.25; above 1 where the remedy costs memory.
    pub keeps: Option<f64>,
    /// How many bytes it frees, where that is not a share.
    pub formula: Option<Formula>,
    /// How many bytes it adds for each weight of the model.
    pub adds: Option<f64>,
    /// Where the figure is from.
    pub source: String,
}

impl Effect {
    /// Whether it can leave less than there is.
    pub fn can_free(&self) -> bool {
        self.adds.is_none() && self.keeps.is_none_or(|keeps| keeps < 1.0)
    }
}

/// A framework in which a remedy is in effect unless the user switches it off.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByDefault {
    /// The framework.
    #[serde(rename = "in")]
    pub framework: Framework,
    /// The first release that does so.
    pub since: Option<Version>,
    /// Operations whose failure shows that it is off all the same.
    #[serde(default)]
    pub unless: Vec<Operation>,
}

/// How a dry run applies a remedy to the user's program without touching the user's files.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DryRun {
    /// By what means.
    pub kind: DryRunKind,
    /// Whether the hook inside the user's Python does it as well.
    #[serde(default)]
    pub hook: bool,
    /// What is done, in a few words.
    pub what: String,
}

impl DryRun {
    /// Whether the hook inside the user's Python can do it.
    pub fn by_hook(&self) -> bool {
        self.hook || self.kind == DryRunKind::Hook
    }
}

/// How much of a remedy is taken.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knob {
    /// What the hook calls it.
    pub option: String,
    /// The setting that the amount divides, where the hook wants the quotient rather than the amount.
    #[serde(default)]
    pub of: Option<Divided>,
    /// The amounts worth trying, the gentlest first.
    pub amounts: Vec<u32>,
}

/// A setting of the run that an amount divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Divided {
    /// Tokens in a sequence.
    SequenceLength,
}

/// The means by which a dry run applies a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DryRunKind {
    /// An environment variable.
    Env,
    /// The program's arguments are rewritten.
    Argv,
    /// The hook inside the user's Python.
    Hook,
    /// The program's own options are set, or a copy of its files is edited.
    Edit,
    /// A key in a temporary copy of a configuration file.
    Config,
    /// Another virtual machine: more cards, another card, no neighbours.
    Machine,
    /// `fix` tries it by a search of its own, in the program's calls and sizes.
    Own,
    /// It cannot be tried by running: it concerns the real machine, or another program.
    None,
}

/// What kind of words a spelling is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Words on the command line.
    Flag,
    /// An environment variable.
    Env,
    /// A line of code.
    Code,
    /// A key of a configuration file.
    Config,
    /// Something that a person does.
    Action,
}

/// How a remedy is written for one framework.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "WrittenEntry")]
pub struct Written {
    /// For which framework.
    pub framework: Framework,
    /// What kind of words these are.
    pub kind: Kind,
    /// The words; names in braces are filled in from the settings of the run.
    pub words: String,
    /// The first release of the framework that understands them.
    pub since: Option<Version>,
    /// The first release that no longer does.
    pub until: Option<Version>,
}

/// A spelling as the files have it: the kind is the key of the words.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEntry {
    r#in: Framework,
    flag: Option<String>,
    env: Option<String>,
    code: Option<String>,
    config: Option<String>,
    action: Option<String>,
    since: Option<Version>,
    until: Option<Version>,
}

impl TryFrom<WrittenEntry> for Written {
    type Error = String;

    fn try_from(entry: WrittenEntry) -> Result<Self, Self::Error> {
        let mut given = [
            (Kind::Flag, entry.flag),
            (Kind::Env, entry.env),
            (Kind::Code, entry.code),
            (Kind::Config, entry.config),
            (Kind::Action, entry.action),
        ]
        .into_iter()
        .filter_map(|(kind, words)| words.map(|words| (kind, words)));
        let (Some((kind, words)), None) = (given.next(), given.next()) else {
            return Err(format!("the words for {} need exactly one of flag, env, code, config, action", entry.r#in));
        };
        Ok(Self { framework: entry.r#in, kind, words, since: entry.since, until: entry.until })
    }
}

impl Written {
    /// Whether this release understands the words; where the release is not known, whether they are for `doubt`:
    /// words of all releases, or those that current releases still understand.
    fn understood_by(&self, version: Option<&Version>, doubt: UnknownRelease) -> bool {
        match (version, doubt) {
            (Some(version), _) => {
                self.since.as_ref().is_none_or(|since| version >= since)
                    && self.until.as_ref().is_none_or(|until| version < until)
            }
            (None, UnknownRelease::AnyRelease) => self.since.is_none() && self.until.is_none(),
            (None, UnknownRelease::CurrentRelease) => self.until.is_none(),
        }
    }
}

/// What to take an unknown release for.
#[derive(Clone, Copy)]
enum UnknownRelease {
    /// Words that every release understands are preferred.
    AnyRelease,
    /// Else those of current releases.
    CurrentRelease,
}

impl Remedy {
    /// The words for a run with these frameworks, the most specific first.
    ///
    /// A framework without words of its own falls back to those beneath it. Who starts a finished program cannot change
    /// its code, so from there only flags, configuration keys and code of that program itself, and environment
    /// variables and actions of what lies beneath, are answers.
    pub fn written_for(&self, frameworks: &[Installed]) -> Option<&Written> {
        let first = frameworks.iter().position(|known| known.framework.reach() != Reach::Place);
        let application = first.is_some_and(|first| frameworks[first].framework.reach() == Reach::Application);
        let version = |framework: Framework| {
            frameworks.iter().find(|known| known.framework == framework).and_then(|known| known.version.as_ref())
        };
        let find = |framework: Framework, own: bool| {
            let library = frameworks.iter().any(|known| known.framework == framework && !known.takes_flags);
            let allowed = |written: &&Written| {
                (own || !application || matches!(written.kind, Kind::Env | Kind::Action))
                    && !(library && written.kind == Kind::Flag)
            };
            self.spellings(framework, version(framework)).find(allowed)
        };
        let own =
            |position: usize, framework: Framework| Some(position) == first || framework.reach() != Reach::Library;
        frameworks
            .iter()
            .enumerate()
            .find_map(|(position, known)| find(known.framework, own(position, known.framework)))
            .or_else(|| {
                frameworks.iter().flat_map(|known| known.framework.below()).find_map(|&below| find(below, false))
            })
            .or_else(|| find(Framework::Machine, true))
    }

    /// The words for a run, with what they leave open filled in from its settings.
    pub fn words_for(&self, situation: &Situation) -> Option<(&Written, String)> {
        let written = self.written_for(&situation.frameworks)?;
        Some((written, words::fill(&written.words, situation)))
    }

    /// What a user of these frameworks should know before using it.
    pub fn note_for(&self, frameworks: &[Installed]) -> Option<String> {
        joined(self.note.as_deref().into_iter().chain(texts_for(&self.asides, frameworks)))
    }

    /// The same where nobody has run it yet, with what may keep it from saving anything.
    pub fn note_before_use(&self, frameworks: &[Installed]) -> Option<String> {
        let known = self.note.as_deref().into_iter().chain(texts_for(&self.asides, frameworks));
        joined(known.chain(texts_for(&self.doubts, frameworks)))
    }

    /// Whether one of the frameworks does it by default, as far as the situation shows. An unknown release is taken to
    /// be a current one.
    pub fn is_default(&self, situation: &Situation) -> bool {
        self.defaults.iter().any(|default| {
            let known = situation.frameworks.iter().find(|known| known.framework == default.framework);
            let recent = known.is_some_and(|known| match (&known.version, &default.since) {
                (Some(version), Some(since)) => version >= since,
                _ => true,
            });
            recent && !situation.operation.is_some_and(|operation| default.unless.contains(&operation))
        })
    }

    /// The words for one framework itself, those for every release first. Whether a release understands them is
    /// respected as in [`Remedy::written_for`].
    pub(crate) fn spellings(&self, framework: Framework, version: Option<&Version>) -> impl Iterator<Item = &Written> {
        [UnknownRelease::AnyRelease, UnknownRelease::CurrentRelease].into_iter().flat_map(move |doubt| {
            self.written
                .iter()
                .filter(move |written| written.framework == framework && written.understood_by(version, doubt))
        })
    }

    /// The cost as one number for sorting: 0 is free and changes nothing.
    ///
    /// Exact and equivalent remedies come first, by the time they cost; then those that change the result.
    pub fn dearness(&self) -> u8 {
        let time = match self.time.class {
            TimeClass::None => 0,
            TimeClass::Small => 1,
            TimeClass::Moderate => 2,
            TimeClass::Large => 4,
        };
        match self.sameness {
            Sameness::Exact | Sameness::Equivalent => time,
            Sameness::Approximate => time + 3,
            Sameness::ChangesTheResult => time + 8,
        }
    }

    /// What it costs in quality in a situation, where it is known to cost any.
    pub fn quality_in(&self, situation: &Situation) -> Option<&str> {
        let quality = self.quality.as_ref()?;
        let pays = quality.certain.is_none_or(|fact| fact.holds(situation) == Some(true));
        pays.then_some(quality.text.as_str())
    }

    /// The cost in a situation as one clause: time, then quality.
    pub fn cost(&self, situation: &Situation) -> String {
        match self.quality_in(situation) {
            Some(quality) => format!("{}; {quality}", self.time.text),
            None => self.time.text.clone(),
        }
    }
}

/// The sentences that concern users of these frameworks.
fn texts_for<'a>(asides: &'a [Aside], frameworks: &'a [Installed]) -> impl Iterator<Item = &'a str> {
    let theirs = |aside: &&Aside| {
        aside.framework == Framework::Machine || frameworks.iter().any(|known| known.framework == aside.framework)
    };
    asides.iter().filter(theirs).map(|aside| aside.text.as_str())
}

fn joined<'a>(sentences: impl Iterator<Item = &'a str>) -> Option<String> {
    let sentences: Vec<&str> = sentences.collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

//! Applies a remedy to a command line and its configuration files, and changes nothing else.
//!
//! The line is one of words, as a shell has already split it. Launchers in front of the program (`accelerate launch`,
//! `torchrun`, `deepspeed`, `python -m`, assignments of variables) are recognised and left alone, order and spelling are
//! kept, the last of repeated flags is the one that counts and changes, and what follows a lone `--` is not touched.

mod arguments;
mod config;
mod document;
mod edits;
mod knobs;
mod line;
mod program;

use serde_json::{Map, Value};

use crate::framework::Framework;
use crate::remedy::{Kind, Remedy, Written};
use crate::situation::{Installed, Situation};
use crate::words;

use config::{Config, LastWord};
use document::Document;
use edits::{Edit, NoEdit};

pub use document::Format;
pub use line::{Line, renamed};
pub use program::{Program, program};

/// What DeepSpeed needs in addition to a remedy's own keys; the rest is left to the arguments of the script.
const DEEPSPEED: &str = include_str!("deepspeed.json");

/// A command line with a remedy applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewrite {
    /// The new words, and what is to be in the files that they name.
    pub line: Line,
    /// Environment variables to set.
    pub environment: Vec<(String, String)>,
    /// What changed, in the order of the remedy's words.
    pub changes: Vec<Change>,
    /// What the user should know: a product that changed, a file that must agree.
    pub notes: Vec<String>,
}

/// Where a setting goes that may be on the command line or in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// On the command line.
    Line,
    /// Into the program's configuration file, if it has one.
    File,
}

/// One argument that changed, or the settings in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file, where it is not the command line.
    pub file: Option<String>,
    /// As it was written; `None` where it is new.
    pub before: Option<String>,
    /// As it is written now; `None` where it is gone.
    pub after: Option<String>,
}

/// Why a remedy cannot be applied to a command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotRewrite {
    /// No known program was found on the line.
    #[error("no known program is started by this command line; apply the remedy by hand")]
    UnknownProgram,
    /// The remedy is not a matter of words for this program.
    #[error("{remedy} is not set by an argument of {framework}; apply it as the remedy says")]
    NotAnArgument {
        /// The remedy's id.
        remedy: String,
        /// The program.
        framework: Framework,
    },
    /// A value is needed that the line does not show.
    #[error("{remedy} needs {name}, which the command line does not show; give it there first")]
    UnknownValue {
        /// The remedy's id.
        remedy: String,
        /// What is not known.
        name: String,
    },
    /// The value is already the smallest there is.
    #[error("{remedy} cannot go further: the value is 1 already")]
    AtItsFloor {
        /// The remedy's id.
        remedy: String,
    },
    /// A configuration file would have to be written first.
    #[error("{remedy} needs the file {file}; write it first")]
    NeedsFile {
        /// The remedy's id.
        remedy: String,
        /// The file.
        file: String,
    },
    /// The line already says so.
    #[error("{remedy} is set already")]
    NothingToChange {
        /// The remedy's id.
        remedy: String,
    },
}

impl Rewrite {
    /// The new line as a shell takes it, with the variables in front.
    pub fn shell(&self) -> String {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        variables.chain(self.line.words.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
    }

    /// What changed, one line each: `-` for what goes and `+` for what comes.
    pub fn diff(&self) -> String {
        let mut lines = Vec::new();
        for (name, value) in &self.environment {
            lines.push(format!("+ {name}={}", quoted(value)));
        }
        for change in &self.changes {
            let place = change.file.as_ref().map(|file| format!("{file}: ")).unwrap_or_default();
            lines.extend(change.before.iter().map(|before| format!("- {place}{before}")));
            lines.extend(change.after.iter().map(|after| format!("+ {place}{after}")));
        }
        lines.join("\n")
    }
}

/// What an argument of the program on a line says, by any of its names: the inner option is `None` where it has no
/// value, the outer one where it is absent.
pub fn argument(line: &Line, name: &str) -> Option<Option<String>> {
    let program = program(line)?;
    let found = arguments::places(&line.words, &program.arguments, program.framework, name, arguments::Takes::Anything);
    found.last().map(|place| place.value.clone())
}

/// The first argument of the program on a line, where it is not an option: the model of `vllm serve MODEL`.
pub fn operand(line: &Line) -> Option<String> {
    let program = program(line)?;
    let first = line.words.get(program.arguments)?.first()?;
    (!first.starts_with('-')).then(|| first.clone())
}

fn quoted(word: &str) -> String {
    // `=` needs no quotes inside a word, and flags are easier to read without them.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(plain) {
        return word.to_owned();
    }
    // Only a word with a NUL byte cannot be quoted, and such a word never was on a command line.
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

/// Applies a remedy to a command line.
///
/// Settings that the line or its files show (batch, accumulation, length) take the place of those of the situation.
///
/// # Errors
///
/// When the program is not known, the remedy is not an argument of it, a value is missing or is 1 already, a file would
/// be needed, or nothing would change.
pub fn rewrite(line: &Line, remedy: &Remedy, situation: &Situation, into: Into) -> Result<Rewrite, CannotRewrite> {
    let program = program(line).ok_or(CannotRewrite::UnknownProgram)?;
    let config = config::of(line, &program);
    let mut situation = situation.clone();
    knobs::read(line, &program, config.as_ref(), &mut situation.settings);
    if !situation.frameworks.iter().any(|known| known.framework == program.framework) {
        situation.frameworks.insert(0, Installed::from(program.framework));
    }
    let rewriting = Rewriting { line, program, config, situation: &situation, into };
    let own = rewriting.by_program(remedy);
    let rewritten = match rewriting.by_deepspeed(remedy, own.as_ref().ok()) {
        Some(rewritten) => rewritten,
        None => own?,
    };
    if rewritten.changes.is_empty() && rewritten.environment.is_empty() {
        return Err(CannotRewrite::NothingToChange { remedy: remedy.id.clone() });
    }
    Ok(rewritten)
}

/// One remedy on its way into one line.
struct Rewriting<'a> {
    line: &'a Line,
    program: Program,
    config: Option<Config>,
    situation: &'a Situation,
    into: Into,
}

impl Rewriting<'_> {
    /// By what the program, what lies beneath it, or its launcher understands.
    fn by_program(&self, remedy: &Remedy) -> Result<Rewrite, CannotRewrite> {
        let Self { line, program, situation, .. } = self;
        let written = spelling(remedy, program, situation, self.config.is_some())
            .ok_or_else(|| CannotRewrite::NotAnArgument { remedy: remedy.id.clone(), framework: program.framework })?;
        let text = self.filled(remedy, written)?;
        let edits = edits::parse(written, &text, program.framework);
        // Keys that no argument stands for may still be said in a file; what is left open, or needs another file, may not.
        let in_file = match &edits {
            Ok(edits) if self.is_said_in_file(written) => self.in_file(written, &text, edits),
            Err(NoEdit::NotAnArgument) => self.in_file(written, &text, &[]),
            _ => None,
        };
        if let Some(rewritten) = in_file {
            return Ok(rewritten);
        }
        // A further argument next to a file that has to be the only one would take the file's place.
        let takes_arguments = self.config.as_ref().is_none_or(|config| config.last_word == LastWord::Line);
        if let Err(NoEdit::File(name)) = &edits
            && takes_arguments
            && let Some(rewritten) = self.with_deepspeed(remedy, name)
        {
            return Ok(rewritten);
        }
        let edits = edits.map_err(|wrong| wrong.of(remedy, program.framework))?;
        if !takes_arguments && written.kind != Kind::Env {
            return Err(NoEdit::NotAnArgument.of(remedy, program.framework));
        }
        let (words, environment, changes) = edits::apply(&line.words, program, written.framework, &edits);
        let notes = notes(line, program, written, situation);
        Ok(Rewrite { line: line.with_words(words), environment, changes, notes })
    }

    /// A remedy's words with the numbers of this run.
    fn filled(&self, remedy: &Remedy, written: &Written) -> Result<String, CannotRewrite> {
        let Some(name) = words::missing(&written.words, self.situation) else {
            return Ok(words::fill(&written.words, self.situation));
        };
        let remedy = remedy.id.clone();
        let settings = &self.situation.settings;
        let floor = match name {
            "half_batch" => settings.batch_size,
            "half_length" => settings.sequence_length,
            "half_sequences" => settings.concurrent_sequences,
            "shorter_context" => settings.context_length,
            "fewer_layers" => settings.gpu_layers,
            _ => None,
        };
        Err(match floor {
            Some(_) => CannotRewrite::AtItsFloor { remedy },
            None => CannotRewrite::UnknownValue { remedy, name: name.replace('_', " ") },
        })
    }

    /// Whether these words go into the program's file, where it takes them.
    fn is_said_in_file(&self, written: &Written) -> bool {
        let has_last_word = self.config.as_ref().is_some_and(|config| config.last_word == LastWord::File);
        written.kind != Kind::Env && (has_last_word || self.into == Into::File)
    }

    /// The line with these words said in the file of the program, or of its launcher.
    fn in_file(&self, written: &Written, text: &str, edits: &[Edit]) -> Option<Rewrite> {
        let (name, settings) = if written.framework == Framework::Accelerate {
            (config::of_accelerate(self.line, &self.program)?, config::of_launcher(edits)?)
        } else {
            let name = self.config.as_ref()?.name.as_str();
            let document = self.line.document(name)?;
            (name, config::settings(document, self.program.framework, written, text, edits)?)
        };
        let mut rewritten = Rewrite {
            line: self.line.clone(),
            environment: Vec::new(),
            changes: Vec::new(),
            notes: notes(self.line, &self.program, written, self.situation),
        };
        rewritten.set(name, &settings)?;
        Some(rewritten)
    }

    /// What DeepSpeed's own file has to say, in addition to what the program's arguments say already.
    fn by_deepspeed(&self, remedy: &Remedy, own: Option<&Rewrite>) -> Option<Rewrite> {
        let name = config::of_deepspeed(self.line, &self.program)?;
        let fragment = self.fragment(remedy)?;
        let settings = config::of_fragment(self.line.document(name)?, &fragment, own.is_some())?;
        let mut rewritten = match own {
            Some(own) => own.clone(),
            None => {
                Rewrite { line: self.line.clone(), environment: Vec::new(), changes: Vec::new(), notes: Vec::new() }
            }
        };
        rewritten.set(name, &settings)?;
        Some(rewritten)
    }

    /// The line with a new file for DeepSpeed, where a launcher starts the program that knows how to.
    fn with_deepspeed(&self, remedy: &Remedy, name: &str) -> Option<Rewrite> {
        if !self.program.is_distributed || config::of_deepspeed(self.line, &self.program).is_some() {
            return None;
        }
        let base = Document::read(Format::Json, DEEPSPEED)?;
        let settings = config::of_fragment(&base, &self.fragment(remedy)?, false)?;
        let edit = Edit::Set { name: "--deepspeed".into(), values: vec![name.to_owned()] };
        let (words, environment, changes) =
            edits::apply(&self.line.words, &self.program, self.program.framework, &[edit]);
        let mut line = self.line.with_words(words);
        line.set(name, base.with(&settings)?);
        Some(Rewrite { line, environment, changes, notes: Vec::new() })
    }

    /// A remedy's words for DeepSpeed's file.
    fn fragment(&self, remedy: &Remedy) -> Option<String> {
        let version = self.situation.version(Framework::Deepspeed);
        let written = remedy.spellings(Framework::Deepspeed, version).find(|written| written.kind == Kind::Config)?;
        let text = self.filled(remedy, written).ok()?;
        Some(text.split("   #").next()?.to_owned())
    }
}

impl Rewrite {
    /// Sets keys of a file, if that is a change.
    fn set(&mut self, name: &str, settings: &Map<String, Value>) -> Option<()> {
        let before = self.line.document(name)?;
        let after = before.with(settings)?;
        if after == *before {
            return Some(());
        }
        let shown = |document: &Document| document.shown(settings);
        self.changes.push(Change { file: Some(name.to_owned()), before: shown(before), after: shown(&after) });
        self.line.set(name, after);
        Some(())
    }
}

/// The words to apply: those of the program, of what lies beneath it, or of `accelerate launch` in front of it.
fn spelling<'a>(remedy: &'a Remedy, program: &Program, situation: &Situation, has_file: bool) -> Option<&'a Written> {
    let usable = |written: &&Written| match written.kind {
        Kind::Flag => true,
        Kind::Env => true,
        Kind::Config => {
            let takes_keys = [Framework::Torchtune, Framework::LlamaFactory, Framework::Axolotl];
            takes_keys.contains(&written.framework) || has_file && written.framework == program.framework
        }
        Kind::Code | Kind::Action => false,
    };
    let own = [program.framework].into_iter().chain(program.framework.below().iter().copied());
    let in_front = program.accelerate.iter().map(|_| Framework::Accelerate);
    own.map(|framework| (framework, framework == program.framework || shares_arguments(program.framework, framework)))
        .chain(in_front.map(|framework| (framework, true)))
        .find_map(|(framework, takes_flags)| {
            remedy
                .spellings(framework, situation.version(framework))
                .filter(usable)
                .find(|written| takes_flags || written.kind == Kind::Env)
        })
}

/// Whether a program takes the arguments of a framework beneath it.
fn shares_arguments(program: Framework, beneath: Framework) -> bool {
    matches!(
        (program, beneath),
        (Framework::Trl | Framework::Peft, Framework::Transformers) | (Framework::IkLlamaCpp, Framework::LlamaCpp)
    )
}

fn notes(line: &Line, program: &Program, written: &Written, situation: &Situation) -> Vec<String> {
    let mut notes = Vec::new();
    let settings = &situation.settings;
    if written.words.contains("{double_accumulation}")
        && let Some(batch) = settings.batch_size.filter(|batch| batch % 2 == 1)
    {
        let steps = settings.gradient_accumulation.unwrap_or(1);
        notes.push(format!(
            "{batch} is odd: the effective batch becomes {} instead of {}",
            batch.div_ceil(2).saturating_mul(2).saturating_mul(steps),
            batch.saturating_mul(steps)
        ));
    }
    if written.words.contains("{half_batch}") {
        let file = arguments::places(
            &line.words,
            &program.arguments,
            program.framework,
            "--deepspeed",
            arguments::Takes::Anything,
        );
        let unread = |file: &&String| !line.is_file(file);
        if let Some(file) = file.last().and_then(|place| place.value.as_ref()).filter(unread) {
            notes.push(format!("{file} must say \"auto\" for batch and accumulation, or the same numbers"));
        }
        if program.framework == Framework::Detectron2 {
            notes
                .push("Detectron2 does not accumulate: halve SOLVER.BASE_LR and double SOLVER.MAX_ITER too".to_owned());
        }
    }
    notes
}

//! Applying a remedy to a command line: the words that change, and nothing else.
//!
//! The line is one of words, as a shell has already split it. Launchers in front of the program (`accelerate launch`,
//! `torchrun`, `deepspeed`, `python -m`, assignments of variables) are recognised and left alone, order and spelling are
//! kept, the last of repeated flags is the one that counts and changes, and what follows a lone `--` is not touched.

mod arguments;
mod edits;
mod knobs;
mod program;

use crate::framework::Framework;
use crate::remedy::{Kind, Remedy, Written};
use crate::situation::{Installed, Situation};
use crate::words;

pub use program::{Program, program};

/// A command line with a remedy applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The new words.
    pub words: Vec<String>,
    /// Environment variables to set.
    pub environment: Vec<(String, String)>,
    /// What changed, in the order of the remedy's words.
    pub changes: Vec<Change>,
    /// What the user should know: a product that changed, a file that must agree.
    pub notes: Vec<String>,
}

/// One argument that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
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
    pub fn line(&self) -> String {
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        variables.chain(self.words.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
    }

    /// What changed, one line each: `-` for what goes and `+` for what comes.
    pub fn diff(&self) -> String {
        let mut lines = Vec::new();
        for (name, value) in &self.environment {
            lines.push(format!("+ {name}={}", quoted(value)));
        }
        for change in &self.changes {
            lines.extend(change.before.iter().map(|before| format!("- {before}")));
            lines.extend(change.after.iter().map(|after| format!("+ {after}")));
        }
        lines.join("\n")
    }
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
/// Settings that the line shows (batch, accumulation, length) take the place of those of the situation.
///
/// # Errors
///
/// When the program is not known, the remedy is not an argument of it, a value is missing or is 1 already, a file would
/// be needed, or nothing would change.
pub fn rewrite(line: &[String], remedy: &Remedy, situation: &Situation) -> Result<Rewrite, CannotRewrite> {
    let program = program(line).ok_or(CannotRewrite::UnknownProgram)?;
    let mut situation = situation.clone();
    knobs::read(line, &program, &mut situation.settings);
    if !situation.frameworks.iter().any(|known| known.framework == program.framework) {
        situation.frameworks.insert(0, Installed::from(program.framework));
    }

    let written = spelling(remedy, &program, &situation)
        .ok_or_else(|| CannotRewrite::NotAnArgument { remedy: remedy.id.clone(), framework: program.framework })?;
    if let Some(name) = words::missing(&written.words, &situation) {
        let remedy = remedy.id.clone();
        let settings = &situation.settings;
        let floor = match name {
            "half_batch" => settings.batch_size,
            "half_length" => settings.sequence_length,
            "half_sequences" => settings.concurrent_sequences,
            "shorter_context" => settings.context_length,
            "fewer_layers" => settings.gpu_layers,
            _ => None,
        };
        return Err(match floor {
            Some(_) => CannotRewrite::AtItsFloor { remedy },
            None => CannotRewrite::UnknownValue { remedy, name: name.replace('_', " ") },
        });
    }
    let text = words::fill(&written.words, &situation);
    let edits = edits::parse(written, &text, program.framework).map_err(|wrong| wrong.of(remedy, program.framework))?;
    let (changed, environment, changes) = edits::apply(line, &program, written.framework, &edits);
    if changes.is_empty() && environment.is_empty() {
        return Err(CannotRewrite::NothingToChange { remedy: remedy.id.clone() });
    }
    let notes = notes(line, &program, written, &situation);
    Ok(Rewrite { words: changed, environment, changes, notes })
}

/// The words to apply: those of the program, of what lies beneath it, or of `accelerate launch` in front of it.
fn spelling<'a>(remedy: &'a Remedy, program: &Program, situation: &Situation) -> Option<&'a Written> {
    let usable = |written: &&Written| match written.kind {
        Kind::Flag => true,
        Kind::Env => true,
        Kind::Config => {
            matches!(written.framework, Framework::Torchtune | Framework::LlamaFactory | Framework::Axolotl)
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

fn notes(line: &[String], program: &Program, written: &Written, situation: &Situation) -> Vec<String> {
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
        let file =
            arguments::places(line, &program.arguments, program.framework, "--deepspeed", arguments::Takes::Anything);
        if let Some(file) = file.last().and_then(|place| place.value.as_ref()) {
            notes.push(format!("{file} must say \"auto\" for batch and accumulation, or the same numbers"));
        }
        if program.framework == Framework::Detectron2 {
            notes
                .push("Detectron2 does not accumulate: halve SOLVER.BASE_LR and double SOLVER.MAX_ITER too".to_owned());
        }
    }
    notes
}

//! Makes remedies ready for one program: as its options, as an edit, as a variable, or as something that the hook does.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use oomph_edit::{Program, Way};
use oomph_launch::HookRemedy;
use oomph_remedy::rewrite::{self, CannotRewrite, Into, Line, Rewrite};
use oomph_remedy::search::{Dose, Mix};
use oomph_remedy::{DryRunKind, Kind, Remedy, Situation};

use super::edits::{self, Edits};
use crate::changes::Changes;
use crate::shell_words::quoted;

/// A file with more bytes is not a configuration.
const LONGEST_CONFIG: u64 = 1 << 20;

/// How remedies become changes to one program.
pub struct Applier<'a> {
    /// The program as it was typed.
    pub command: &'a [OsString],
    /// The same as text, with the configuration files that it names; `None` where a word is not text.
    pub line: Option<Line>,
    /// What is known of it.
    pub situation: &'a Situation,
    /// Whether the hook runs in it.
    pub hook: bool,
    /// Its own code and options, where it is a Python program.
    pub edits: Option<Edits>,
    /// Remedies whose options it was seen not to take, by id.
    pub refused: Mutex<BTreeSet<String>>,
}

/// By what means a remedy is applied, the program's own first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// Options or configuration files of the program, or options that it declares itself.
    Own,
    /// An edit of its code.
    Edit,
    /// A variable of the environment.
    Environment,
    /// An intervention from inside: the user makes the change by hand.
    Hook,
}

/// A mix made ready for this program.
pub struct Ready {
    /// What a trial changes.
    pub changes: Changes,
    /// The program with its edits, where any remedy was placed in it.
    pub program: Option<Program>,
    /// The most intrusive of the means.
    pub means: Means,
    /// What the user should know, one sentence each.
    pub notes: Vec<String>,
    /// The effective batch before and after, where it shrinks.
    pub smaller_batch: Option<(u64, u64)>,
}

/// How a remedy is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Hook,
    Arguments,
    Edit,
    Environment,
}

impl Applier<'_> {
    /// Whether a trial can apply a remedy.
    pub fn can_apply(&self, remedy: &Remedy) -> bool {
        self.door(remedy).is_some()
    }

    /// By what means a remedy would be applied alone.
    pub fn means(&self, remedy: &Remedy) -> Option<Means> {
        let dose = Dose::of(remedy);
        self.ready(&Mix::single(Dose { amount: remedy.knob.as_ref().map(|_| 2), ..dose })).ok().map(|ready| ready.means)
    }

    /// A program that is known by name gets what its user would type, and others an edit where its place is certain. From
    /// inside it is seen whether a change took effect, but the user has to make it by hand.
    fn door(&self, remedy: &Remedy) -> Option<Door> {
        if self.has_options_for(remedy) {
            return Some(Door::Arguments);
        }
        if !self.was_refused(remedy) && self.places(remedy) {
            return Some(Door::Edit);
        }
        if self.hook && remedy.dry_run.by_hook() {
            return Some(Door::Hook);
        }
        match remedy.dry_run.kind {
            DryRunKind::Argv if !self.was_refused(remedy) => {
                let line = self.line.as_ref()?;
                let rewritten = self.rewritten(line, &Dose::of(remedy), Into::Line).ok()?;
                self.takes(&rewritten.line, line).then_some(Door::Arguments)
            }
            DryRunKind::Env => self.variables(remedy).map(|_| Door::Environment),
            _ => None,
        }
    }

    /// Whether a remedy can be placed in the program's code or set by its options.
    pub fn places(&self, remedy: &Remedy) -> bool {
        self.edits.as_ref().is_some_and(|edits| edits.place(&edits.program, &Dose::of(remedy)).is_ok())
    }

    /// Whether a remedy is applied as an edit of the program's code or options.
    pub fn is_edited(&self, remedy: &Remedy) -> bool {
        matches!(self.door(remedy), Some(Door::Edit))
    }

    /// Whether the program is one whose options are known, has some for this remedy, and was not seen to refuse them.
    ///
    /// What a dry run cannot show, such as kernels that are compiled, is not tried.
    fn has_options_for(&self, remedy: &Remedy) -> bool {
        if remedy.dry_run.kind == DryRunKind::None {
            return false;
        }
        let known = self.line.as_ref().filter(|line| !self.was_refused(remedy) && rewrite::program(line).is_some());
        known.is_some_and(|line| {
            let rewritten = self.rewritten(line, &Dose::of(remedy), Into::Line);
            rewritten.is_ok_and(|rewritten| rewritten.line != *line && self.takes(&rewritten.line, line))
        })
    }

    /// Whether the program takes the options that one line has and another has not. A script may be called as one of a
    /// library's examples are, and have a parser of its own.
    fn takes(&self, line: &Line, before: &Line) -> bool {
        self.edits.as_ref().is_none_or(|edits| edits.takes(&line.words, &before.words))
    }

    /// A line with one dose of a remedy.
    fn rewritten(&self, line: &Line, dose: &Dose<'_>, into: Into) -> Result<Rewrite, CannotRewrite> {
        rewrite::rewrite(line, dose.remedy, &dosed(self.situation, dose), into)
    }

    /// What one dose changes on the unmodified line and in its files; `None` where it cannot be expressed there.
    pub fn alone(&self, dose: &Dose<'_>) -> Option<Rewrite> {
        self.rewritten(self.line.as_ref()?, dose, Into::Line).ok()
    }

    /// The whole mix in words, variables and files, with nothing done from inside and no code changed; `None` where that
    /// cannot be.
    pub fn said(&self, mix: &Mix<'_>, into: Into) -> Option<Said> {
        let before = self.line.as_ref()?;
        if let Ok(Ready { changes, program: Some(_), means, .. }) = self.ready(mix)
            && means != Means::Hook
            && changes.edited.is_empty()
        {
            let words = changes.command.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
            return Some(Said { words, environment: changes.env, files: changes.files });
        }
        let mut line = before.clone();
        let mut environment = Vec::new();
        for dose in &mix.doses {
            if self.was_refused(dose.remedy) || self.door(dose.remedy) == Some(Door::Edit) {
                return None;
            }
            let rewritten = self.rewritten(&line, dose, into).ok()?;
            line = rewritten.line;
            environment.extend(rewritten.environment);
        }
        let files = changed(&line, before);
        Some(Said { words: line.words, environment, files })
    }

    /// Whether the program was seen not to take the options for this remedy.
    pub fn was_refused(&self, remedy: &Remedy) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&remedy.id)
    }

    /// The variables that a remedy sets.
    fn variables(&self, remedy: &Remedy) -> Option<Vec<(String, String)>> {
        let (written, words) = remedy.words_for(self.situation)?;
        if written.kind != Kind::Env {
            return None;
        }
        words.split_whitespace().map(|word| word.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()))).collect()
    }

    /// The remedy whose option on the command line is one that a program ended over, and how that is reported.
    pub fn refused_word<'r>(&self, mix: &Mix<'r>, changes: &Changes, message: &str) -> Option<(&'r Remedy, String)> {
        let is_new = |word: &&str| word.starts_with("--") && !self.command.iter().any(|known| known == *word);
        let words: Vec<&str> = changes.command.iter().filter_map(|word| word.to_str()).filter(is_new).collect();
        let named = |word: &&&str| {
            let option = word.split('=').next().unwrap_or(word);
            message
                .split(|letter: char| letter.is_whitespace() || "=,;:'\"`".contains(letter))
                .any(|part| part == option)
        };
        let word = words.iter().find(named)?;
        let brings = |dose: &&Dose<'_>| {
            let alone = self.changes(&Mix::single(**dose));
            alone.is_ok_and(|alone| alone.command.iter().any(|known| known.to_str() == Some(word)))
        };
        let dose = mix.doses.iter().find(brings)?;
        let option = word.split('=').next().unwrap_or(word);
        Some((dose.remedy, format!("the program does not take {option}")))
    }

    /// What a trial of this mix changes; the remedy that cannot be applied and the reason otherwise.
    pub fn changes(&self, mix: &Mix<'_>) -> Result<Changes, (String, String)> {
        self.ready(mix).map(|ready| ready.changes)
    }

    /// A mix made ready; the remedy that cannot be applied and the reason otherwise.
    pub fn ready(&self, mix: &Mix<'_>) -> Result<Ready, (String, String)> {
        let mut changes = Changes::none(self.command);
        let mut line = None;
        let mut program: Option<Program> = None;
        let (mut means, mut notes, mut smaller_batch) = (Means::Own, Vec::new(), None);
        for dose in &mix.doses {
            let remedy = dose.remedy;
            let refuse = |why: &str| (remedy.id.clone(), why.to_owned());
            let words = || line.as_ref().or(self.line.as_ref()).ok_or_else(|| refuse("a word is not text"));
            match self.door(remedy).ok_or_else(|| refuse("it cannot be applied to this program in a dry run"))? {
                Door::Hook => {
                    let option = dose.option(&self.situation.settings);
                    if remedy.knob.is_some() && option.is_none() {
                        return Err(refuse("the setting that it divides is not known"));
                    }
                    let options = option.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect();
                    changes.remedies.push(HookRemedy { id: remedy.id.clone(), options });
                    means = Means::Hook;
                }
                Door::Edit => {
                    let edits = self.edits.as_ref().ok_or_else(|| refuse("the program's code was not read"))?;
                    let before: Line = words()?.clone();
                    let now = program.as_ref().unwrap_or(&edits.program);
                    let now = now.with_arguments(edits.arguments(&before.words).to_vec());
                    let placed = edits.place(&now, dose).map_err(|error| refuse(&error.to_string()))?;
                    let way = if placed.way == Way::Option { Means::Own } else { Means::Edit };
                    means = means.max(way);
                    notes.extend(placed.notes);
                    smaller_batch = placed.smaller_batch.or(smaller_batch);
                    let mut after = before.clone();
                    after.words = edits.command(&before.words, &placed.program);
                    line = Some(after);
                    program = Some(placed.program);
                }
                Door::Arguments => {
                    let rewritten =
                        self.rewritten(words()?, dose, Into::Line).map_err(|error| refuse(&error.to_string()))?;
                    changes.env.extend(rewritten.environment);
                    line = Some(rewritten.line);
                }
                Door::Environment => {
                    changes.env.extend(self.variables(remedy).ok_or_else(|| refuse("it sets no variable"))?);
                    means = means.max(Means::Environment);
                }
            }
        }
        if let (Some(line), Some(before)) = (line, &self.line) {
            changes.files = changed(&line, before);
            changes.command = line.words.into_iter().map(OsString::from).collect();
        }
        if let (Some(program), Some(edits)) = (&program, &self.edits) {
            changes.edited = program.changed_since(&edits.program);
        }
        Ok(Ready { changes, program, means, notes, smaller_batch })
    }
}

/// A mix without the hook: what its user would type and write.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The command line.
    pub words: Vec<String>,
    /// Variables to set.
    pub environment: Vec<(String, String)>,
    /// What is to be in the configuration files that change, by the words that name them.
    pub files: BTreeMap<String, String>,
}

impl Said {
    /// The command for a shell, with other names for some files.
    pub fn shell(&self, names: &BTreeMap<String, String>) -> String {
        let set = self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let words = self.words.iter().map(|word| quoted(&rewrite::renamed(word, names)));
        set.chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// The files of a line that say something else than before.
fn changed(line: &Line, before: &Line) -> BTreeMap<String, String> {
    line.files_changed_since(before).map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// The command as text with the configuration files that it names, as they are in the folder it runs in.
pub fn line_of(command: &[OsString], directory: &Path) -> Option<Line> {
    let words: Vec<String> = command.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let read = |path: &Path| {
        // A pipe would wait for somebody to write.
        let is_file = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= LONGEST_CONFIG);
        is_file.then(|| fs::read_to_string(path).ok()).flatten()
    };
    let spelled: Vec<&str> = words.iter().map(String::as_str).collect();
    let code = edits::script(&spelled, directory).and_then(|(_, path, _)| read(&path));
    Some(Line::reading(words, |name| read(&directory.join(name))).with_code(code))
}

/// The situation with the amount of a dose.
pub fn dosed(situation: &Situation, dose: &Dose<'_>) -> Situation {
    let mut situation = situation.clone();
    situation.settings.divide_by = dose.amount.map(u64::from).or(situation.settings.divide_by);
    situation
}

#[cfg(test)]
mod tests {
    use oomph_remedy::{Catalogue, Cause, Framework};

    use super::*;

    #[test]
    fn an_option_that_a_script_refuses_is_distinguished_from_other_failures_and_not_tried_again() {
        let command: Vec<OsString> =
            ["python", "train_text_to_image_lora.py", "--train_batch_size=16"].map(OsString::from).into();
        let situation = Situation::of([Framework::DiffusersScripts, Framework::Pytorch], Cause::Full);
        let line = line_of(&command, Path::new("."));
        let applier = Applier {
            command: &command,
            line,
            situation: &situation,
            hook: true,
            edits: None,
            refused: Default::default(),
        };
        let remedy = Catalogue::builtin().get("cached-latents").expect("the catalogue has it");
        let mix = Mix::single(Dose::of(remedy));
        let changes = applier.changes(&mix).expect("the script is known");
        assert!(changes.command.iter().any(|word| word == "--cache_latents"), "{:?}", changes.command);
        let message = "train.py: error: unrecognized arguments: --cache_latents";
        let (refused, why) = applier.refused_word(&mix, &changes, message).expect("it is named");
        assert_eq!(
            (refused.id.as_str(), why.as_str()),
            ("cached-latents", "the program does not take --cache_latents")
        );
        for other in ["RuntimeError: no latents", "error: argument --train_batch_size: expected one argument"] {
            assert!(applier.refused_word(&mix, &changes, other).is_none(), "{other}");
        }
        applier.refused.lock().unwrap().insert(refused.id.clone());
        assert!(!applier.can_apply(remedy));
    }
}

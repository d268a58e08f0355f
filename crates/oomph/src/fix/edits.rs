//! Turns remedies into edits of the user's own program: its options and its files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use oomph_edit::{Amount, CannotPlace, Facts, KeptAt, ModelFacts, Placed, Program, With8Bits};
use oomph_launch::{HookKept, HookSite};
use oomph_remedy::search::Dose;
use oomph_remedy::{Catalogue, Situation, lower_utilization};

use super::situation::Known;

/// A program whose code can be edited.
pub struct Edits {
    /// As the user has it.
    pub program: Program,
    /// The place of the script, or of the module's name, in the command.
    word: usize,
    facts: Facts,
}

impl Edits {
    /// The Python program of a command; `None` where its script is not found or not valid Python.
    pub fn of(command: &[OsString], directory: &Path, known: &Known<'_>) -> Option<Self> {
        let words: Vec<&str> = command.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
        let (word, script, folder) = script(&words, directory)?;
        let arguments = words[word + 1..].iter().map(|word| (*word).to_owned()).collect();
        let program = Program::read(&script, &folder, arguments)?.with_settings(directory);
        Some(Self { program, word, facts: facts(known) })
    }

    /// Places one dose of a remedy in the program as others have left it.
    ///
    /// # Errors
    /// Where its place is not certain.
    pub fn place(&self, program: &Program, dose: &Dose<'_>) -> Result<Placed, CannotPlace> {
        program.apply(&dose.remedy.id, Amount { by: dose.amount.map(u64::from) }, &self.facts)
    }

    /// Gives the recipes the longest contexts of a server that fit, the most layers, and smaller shares of the card in its
    /// `situation`.
    pub fn learn(
        &mut self,
        context_that_fits: Option<u64>,
        context_with_8_bits: With8Bits,
        layers_that_fit: Option<u64>,
        situation: &Situation,
    ) {
        self.facts.context_that_fits = context_that_fits;
        self.facts.context_with_8_bits = context_with_8_bits;
        self.facts.layers_that_fit = layers_that_fit;
        let knob = Catalogue::builtin().get("lower-utilization").and_then(|remedy| remedy.knob.as_ref());
        let percents = knob.into_iter().flat_map(|knob| &knob.amounts).map(|percent| u64::from(*percent));
        let share = |percent: u64| {
            let mut situation = situation.clone();
            situation.settings.divide_by = Some(percent);
            Some((percent, lower_utilization(&situation)?))
        };
        self.facts.lower_shares = percents.filter_map(share).collect();
    }

    /// How many samples the program takes at a time, as its code and options say.
    pub fn batch_size(&self) -> Option<u64> {
        let placed = self.program.apply("smaller-training-batch", Amount { by: Some(2) }, &self.facts).ok()?;
        placed.smaller_batch.map(|(old, _)| old)
    }

    /// The texts of some files as they were read.
    pub fn originals<'p>(&self, paths: impl Iterator<Item = &'p PathBuf>) -> BTreeMap<PathBuf, String> {
        let text = |path: &PathBuf| Some((path.clone(), self.program.text(path)?.to_owned()));
        paths.filter_map(text).collect()
    }

    /// The words after the script in a whole command.
    pub fn arguments<'w>(&self, words: &'w [String]) -> &'w [String] {
        words.get(self.word + 1..).unwrap_or_default()
    }

    /// Whether the program takes all options of one command that another does not have, as far as its files say.
    pub fn takes(&self, words: &[String], before: &[String]) -> bool {
        let is_new = |word: &&String| is_option(word) && !before.contains(word);
        let mut flags = self.arguments(words).iter().filter(is_new).map(|word| word.split('=').next().unwrap_or(word));
        flags.all(|flag| self.program.takes(flag) != Some(false))
    }

    /// A whole command with other words after the script.
    pub fn command(&self, words: &[String], program: &Program) -> Vec<String> {
        let mut command: Vec<String> = words.iter().take(self.word + 1).cloned().collect();
        command.extend(program.arguments().iter().cloned());
        command
    }
}

/// Whether a word sets something by name: `--batch_size`, `batch_size=8`, and detectron2's `SOLVER.IMS_PER_BATCH`.
fn is_option(word: &str) -> bool {
    let of_a_key = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || "_.".contains(letter);
    let is_key = word.starts_with(|letter: char| letter.is_ascii_uppercase()) && word.contains('.');
    word.starts_with("--") || word.contains('=') || is_key && word.chars().all(of_a_key)
}

/// The script of a command: its place, its path, and the folder in which Python looks for modules first.
pub fn script(words: &[&str], directory: &Path) -> Option<(usize, PathBuf, PathBuf)> {
    // `python -m package.module`, also behind a launcher.
    let module = words.iter().position(|word| *word == "-m").and_then(|place| {
        let path = words.get(place + 1)?.split('.').fold(directory.to_owned(), |path, part| path.join(part));
        let file = path.with_extension("py");
        let file = if file.is_file() { file } else { path.join("__main__.py") };
        file.is_file().then(|| (place + 1, file, directory.to_owned()))
    });
    module.or_else(|| {
        words.iter().enumerate().find_map(|(place, word)| {
            let path = directory.join(word);
            // A notebook follows the command that runs it: `jupyter nbconvert --execute`, `papermill`.
            let python = (word.ends_with(".py") || word.ends_with(".ipynb")) && path.is_file();
            // Python puts the folder of the file that a link points to first.
            let real = python.then(|| path.canonicalize().ok()).flatten()?;
            let folder = real.parent()?.to_owned();
            Some((place, real, folder))
        })
    })
}

fn facts(known: &Known<'_>) -> Facts {
    let program = known.program;
    let arguments = program.trainer.as_ref().map(|trainer| &trainer.arguments);
    let mut models: Vec<_> = program.models.iter().collect();
    models.sort_by_key(|model| std::cmp::Reverse(model.parameters));
    let trained: Vec<_> = models.iter().copied().filter(|model| model.trainable > 0).collect();
    let tokens = program.loaders.iter().find_map(|loader| loader.first_batch.get("input_ids"));
    Facts {
        trainer: program.trainer.as_ref().map(|trainer| trainer.class.clone()),
        models: trained
            .into_iter()
            .map(|model| ModelFacts {
                class: model.class.clone(),
                library: model.library.clone(),
                blocks: model.blocks.iter().map(|blocks| blocks.path.clone()).collect(),
            })
            .collect(),
        kept: program.kept.iter().filter_map(kept_at).collect(),
        untrained: program
            .untrained
            .iter()
            .filter_map(|call| {
                let file = PathBuf::from(&call.file);
                Some((file.canonicalize().unwrap_or(file), usize::try_from(call.line).ok()?))
            })
            .collect(),
        batch_size: arguments
            .and_then(|arguments| arguments.per_device_train_batch_size)
            .or_else(|| program.loaders.iter().find_map(|loader| loader.batch_size)),
        accumulation: arguments.and_then(|arguments| arguments.gradient_accumulation_steps),
        sequence_length: tokens
            .and_then(|shape| shape.get(1).copied())
            .or_else(|| arguments.and_then(|arguments| arguments.max_length)),
        capability: known.capability,
        normalises_batches: models.iter().any(|model| model.trainable > 0 && model.batch_norm == Some(true)),
        cards: u32::try_from(known.cards).unwrap_or(u32::MAX),
        context_that_fits: None,
        context_with_8_bits: With8Bits::default(),
        lower_shares: BTreeMap::new(),
        layers_that_fit: None,
        died_at: known.oom.and_then(|oom| oom.site.as_ref()).and_then(died_at),
    }
}

fn died_at(site: &HookSite) -> Option<(PathBuf, usize)> {
    let file = PathBuf::from(&site.file);
    Some((file.canonicalize().unwrap_or(file), usize::try_from(site.line).ok()?))
}

fn kept_at(kept: &HookKept) -> Option<KeptAt> {
    let file = PathBuf::from(kept.file.as_ref()?);
    Some(KeptAt {
        file: file.canonicalize().unwrap_or(file),
        line: usize::try_from(kept.line?).ok()?,
        kind: kept.kind.clone(),
        name: kept.name.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_found_behind_a_launcher() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("pkg")).unwrap();
        for name in ["train.py", "pkg/run.py"] {
            std::fs::write(folder.join(name), "x = 1\n").unwrap();
        }
        let found = |words: &[&str]| script(words, &folder).map(|(place, path, _)| (place, path));
        assert_eq!(found(&["accelerate", "launch", "train.py", "--x"]), Some((2, folder.join("train.py"))));
        assert_eq!(found(&["python", "-m", "pkg.run"]), Some((2, folder.join("pkg/run.py"))));
        assert_eq!(found(&["python", "-m", "torch.distributed.run", "train.py"]), Some((3, folder.join("train.py"))));
        assert_eq!(found(&["python", "other.py"]), None);
    }
}

//! Settings in configuration files that the program reads itself: YAML, JSON and TOML.
//!
//! A setting is a plain value of such a file, known by the keys that lead to it. It is changed where it is written, and
//! every other byte of the file stays.

use std::path::{Path, PathBuf};

use crate::calls::Call;
use crate::documents::{Document, is_named};
use crate::literals::string;
use crate::opt::{Opt, Written};
use crate::program::Program;
use crate::scopes::{assigned, parameters};
use crate::source::{At, function_of};

/// How many names lead from a use to the file.
const MOST_STEPS: usize = 8;

impl Program {
    /// The same program with the settings of the configuration files that it names, relative to the directory in which it
    /// runs or to its folder.
    #[must_use]
    pub fn with_settings(self, directory: &Path) -> Self {
        self.reading_settings(directory, |path| std::fs::read_to_string(path).ok())
    }

    /// The same with another way to read a file.
    #[must_use]
    pub fn reading_settings(self, directory: &Path, read: impl Fn(&Path) -> Option<String>) -> Self {
        // What Hydra reads is set on the line.
        if self.configured().is_empty() {
            let found = documents(&self, directory, self.folder(), &read);
            return self.with_documents(found);
        }
        self
    }
}

/// The configuration files that the program names, in its code and on its command line, with their settings.
///
/// A relative name is looked up in `directory`, in which the program runs, and in the script's folder. Where a file is the
/// default of an option for which the line names another, it is not read.
pub(crate) fn documents(
    program: &Program,
    directory: &Path,
    folder: &Path,
    read: &impl Fn(&Path) -> Option<String>,
) -> Vec<(PathBuf, Document)> {
    let arguments = program.arguments();
    let options = program.options();
    let replaced: Vec<String> = options
        .iter()
        .filter(|option| option.value_in(arguments) != option.default)
        .filter_map(|option| option.default.clone())
        .collect();
    let typed = arguments.iter().map(|word| word.split_once('=').map_or(word.as_str(), |(_, value)| value).to_owned());
    let written = program.all("string").into_iter().filter_map(string).filter(|text| !replaced.contains(text));
    let mut found: Vec<(PathBuf, Document)> = Vec::new();
    for name in typed.chain(written).filter(|text| is_named(text)) {
        for path in [directory.join(&name), folder.join(&name)] {
            if found.iter().any(|(known, _)| *known == path) {
                break;
            }
            if let Some(document) = read(&path).and_then(|text| Document::parse(&path, text)) {
                found.push((path, document));
                break;
            }
        }
    }
    found
}

/// The setting that an expression reads, such as `cfg["data"]["batch_size"]` and `self.config.data.batch_size`.
///
/// The keys of the expression are compared with the last keys of each setting. Where no setting ends with all of them, the
/// first is left out, and so on. `None` where several settings match equally well.
pub(crate) fn read_by(program: &Program, at: At<'_>) -> Option<Opt> {
    named(program, &keys(program, at, MOST_STEPS))
}

/// The setting of a key in the table that an expression is, such as `**cfg["loader"]`.
pub(crate) fn entry_of(program: &Program, at: At<'_>, key: &str) -> Option<Opt> {
    let mut path = keys(program, at, MOST_STEPS);
    path.push(key.to_owned());
    named(program, &path)
}

/// Whether the program's code names a setting: one that it does not name may never be read.
pub(crate) fn is_named_in_code(program: &Program, setting: &Written) -> bool {
    let Some(key) = setting.keys.last() else { return false };
    program.files().any(|(_, source)| source.text().contains(key.as_str()))
}

fn named(program: &Program, keys: &[String]) -> Option<Opt> {
    let settings: Vec<&Opt> = program.settings().collect();
    for start in 0..keys.len() {
        let ends = |option: &&&Opt| option.written.as_ref().is_some_and(|place| place.keys.ends_with(&keys[start..]));
        let found: Vec<&&Opt> = settings.iter().filter(ends).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Some((**one).clone()),
            several => {
                let whole = |option: &&&&Opt| {
                    option.written.as_ref().is_some_and(|place| place.keys.len() == keys.len() - start)
                };
                let mut exact = several.iter().filter(whole);
                return exact.next().filter(|_| exact.next().is_none()).map(|one| (**one).clone());
            }
        }
    }
    None
}

/// The keys by which an expression goes into a table, as far as its code says: of `d["size"]` with `d = cfg["data"]` they
/// are `data` and `size`.
fn keys(program: &Program, at: At<'_>, left: usize) -> Vec<String> {
    if left == 0 {
        return Vec::new();
    }
    let node = |field: &str| at.node.child_by_field_name(field).map(|node| at.with(node));
    let below = |object: Option<At<'_>>, key: Option<String>| {
        let mut found = object.map(|object| keys(program, object, left - 1)).unwrap_or_default();
        match key {
            Some(key) => found.push(key),
            // What is chosen by a value that is not known leads anywhere.
            None => found.clear(),
        }
        found
    };
    match at.node.kind() {
        "subscript" => below(node("value"), node("subscript").and_then(string)),
        "attribute" => below(node("object"), node("attribute").map(|at| at.text().to_owned())),
        "call" => match Call::of(at) {
            Some(call) if call.name() == "get" => {
                below(call.object().map(|node| at.with(node)), call.argument("key", 0).and_then(string))
            }
            _ => Vec::new(),
        },
        "identifier" => match origin(program, at) {
            Some(origin) => keys(program, origin, left - 1),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// What a name was given: by the only assignment in its function or file, or by the only call of its function.
fn origin<'a>(program: &'a Program, at: At<'a>) -> Option<At<'a>> {
    let name = at.text();
    let one = |scope: At<'a>| match assigned(scope, name).as_slice() {
        [one] => Some(*one),
        _ => None,
    };
    let Some(function) = function_of(at.node).map(|node| at.with(node)) else {
        return one(at.with(at.source.root()));
    };
    if let Some(place) = parameters(function).iter().position(|(found, _)| *found == name) {
        let called = function.node.child_by_field_name("name").map(|node| function.source.of(node))?;
        let mut calls = program.calls().into_iter().filter(|call| call.name() == called);
        let call = calls.next().filter(|_| calls.next().is_none())?;
        return call.argument(name, place);
    }
    one(function).or_else(|| one(at.with(at.source.root())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Amount, Facts};

    const CONFIG: &str = "# caf\u{e9}\ndata:\n  batch_size: 256   # per GPU\n  val_batch_size: 128\noptim: {lr: 1.0e-3, name: 'adam'}\namp: false\ngrad_accum: 1\n";

    fn program(script: &str, files: &[(&str, &str)], arguments: &[&str]) -> Program {
        let read = |path: &Path| {
            let name = path.strip_prefix("/p").ok()?.to_str()?;
            if name == "train.py" {
                return Some(script.to_owned());
            }
            files.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        };
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let program = Program::reading(Path::new("/p/train.py"), Path::new("/p"), arguments, read).unwrap();
        program.reading_settings(Path::new("/p"), read)
    }

    fn halved(program: &Program) -> String {
        let placed = program.apply("micro-batch", Amount { by: Some(2) }, &Facts::default()).unwrap();
        placed.program.patch_since(program, Path::new("/p"))
    }

    #[test]
    fn a_batch_in_a_file_of_settings_is_changed_there() {
        let script = "import yaml\ncfg = yaml.safe_load(open('config.yaml'))\ndef build(cfg):\n    d = cfg['data']\n    \
                      return DataLoader(x, batch_size=d['batch_size'], shuffle=True)\nloader = build(cfg)\nfor x in loader:\n    \
                      loss = model(x) / cfg['grad_accum']\n    loss.backward()\n    opt.step()\n    opt.zero_grad()\n";
        let patch = halved(&program(script, &[("config.yaml", CONFIG)], &[]));
        assert!(patch.contains("-  batch_size: 256   # per GPU\n+  batch_size: 128   # per GPU\n"), "{patch}");
        assert!(patch.contains("-grad_accum: 1\n+grad_accum: 2\n"), "{patch}");
        assert!(!patch.contains("train.py"), "{patch}");
    }

    #[test]
    fn two_remedies_in_one_file_keep_their_places() {
        let script = "cfg = yaml.safe_load(open('config.yaml'))\nsteps = cfg.grad_accum\nloader = DataLoader(x, batch_size=cfg.data.batch_size)\n";
        let whole = program(script, &[("config.yaml", CONFIG)], &[]);
        let once = whole.apply("micro-batch", Amount { by: Some(16) }, &Facts::default()).unwrap().program;
        let again = once.settings().find(|option| option.name == "amp").unwrap();
        let place = again.written.clone().unwrap();
        assert_eq!(&once.text(&place.file).unwrap()[place.range], "false");
    }

    #[test]
    fn files_are_found_by_the_line_and_by_the_code() {
        let script = "p.add_argument('--config', default='a.json')\n";
        let files = [("a.json", "{\"batch_size\": 8}"), ("b.toml", "[train]\nbatch_size = 4\n")];
        let names = |arguments: &[&str]| {
            let program = program(script, &files, arguments);
            let found: Vec<String> = program.settings().map(|option| option.default.clone().unwrap()).collect();
            found
        };
        assert_eq!(names(&[]), ["8"]);
        assert_eq!(names(&["--config", "b.toml"]), ["4"]);
        assert_eq!(names(&["--config=b.toml"]), ["4"]);
    }

    #[test]
    fn what_the_code_never_names_does_not_accumulate() {
        let script = "cfg = yaml.safe_load(open('config.yaml'))\nloader = DataLoader(x, batch_size=cfg['data']['batch_size'])\n\
                      for x in loader:\n    loss = model(x)\n    loss.backward()\n    opt.step()\n    opt.zero_grad()\n";
        let patch = halved(&program(script, &[("config.yaml", CONFIG)], &[]));
        assert!(patch.contains("+  batch_size: 128") && !patch.contains("grad_accum: 2"), "{patch}");
        assert!(patch.contains("(loss / 2).backward()"), "{patch}");
    }

    #[test]
    fn arguments_of_a_trainer_that_stand_in_a_file_are_changed_there() {
        let script = "cfg = yaml.safe_load(open('config.yaml'))\nargs = TrainingArguments(**cfg['training'])\n";
        let config = "training:\n  output_dir: out\n  per_device_train_batch_size: 8\n";
        let program = program(script, &[("config.yaml", config)], &[]);
        let facts = Facts { batch_size: Some(8), trainer: Some("Trainer".into()), ..Facts::default() };
        let placed = program.apply("micro-batch", Amount { by: Some(4) }, &facts).unwrap();
        let patch = placed.program.patch_since(&program, Path::new("/p"));
        assert!(patch.contains("+  per_device_train_batch_size: 2"), "{patch}");
        assert!(patch.contains("(**cfg['training'], gradient_accumulation_steps=4)"), "{patch}");
    }
}

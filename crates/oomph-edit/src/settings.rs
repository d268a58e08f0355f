//! Settings in configuration files that the program reads itself: YAML, JSON and TOML.
//!
//! A setting is a plain value of such a file, known by the keys that lead to it. It is changed where it is written, and
//! every other byte of the file stays.

use std::ops::Range;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use crate::calls::Call;
use crate::options::{Opt, OptKind, parameters, string};
use crate::program::{At, Program};
use crate::source::function_of;

/// A file with more bytes holds data.
const LONGEST: usize = 1 << 20;

/// A file with more values holds data.
const MOST_SETTINGS: usize = 2000;

/// How deep tables are followed.
const DEEPEST: usize = 8;

/// How many names lead from a use to the file.
const MOST_STEPS: usize = 8;

/// Keys of files that another part of oomph changes, since a library reads them: DeepSpeed's.
const OF_LIBRARIES: &[&str] = &["zero_optimization", "train_micro_batch_size_per_gpu"];

/// Where a setting is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub file: PathBuf,
    /// The keys that lead to it: `data`, `batch_size`.
    pub keys: Vec<String>,
    /// The bytes of its value.
    pub range: Range<usize>,
}

/// A configuration file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub text: String,
    pub settings: Vec<Opt>,
}

impl Document {
    /// `None` where it is not a table of settings.
    pub fn parse(path: &Path, text: String) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut values = match ending(path)? {
            Ending::Toml => of_toml(&text)?,
            Ending::Yaml | Ending::Json => of_yaml(&text)?,
        };
        values.retain(|value| text.get(value.range.clone()).is_some_and(|text| !text.contains('\n')));
        let of_library = |value: &Found| value.keys.first().is_some_and(|key| OF_LIBRARIES.contains(&key.as_str()));
        if values.is_empty() || values.len() > MOST_SETTINGS || values.iter().any(of_library) {
            return None;
        }
        let settings = values.into_iter().map(|value| value.option(path)).collect();
        Some(Self { text, settings })
    }
}

/// A value as it is written in a file of this name.
pub(crate) fn spelled(path: &Path, value: &str, before: &str) -> String {
    let json = matches!(ending(path), Some(Ending::Json | Ending::Toml));
    match value {
        "True" | "False" => value.to_lowercase(),
        "None" if !matches!(ending(path), Some(Ending::Toml)) => "null".to_owned(),
        _ if value.parse::<f64>().is_ok() => value.to_owned(),
        _ => {
            let quote = before.chars().next().filter(|letter| matches!(letter, '"' | '\'')).or(json.then_some('"'));
            quote.map_or_else(|| value.to_owned(), |quote| format!("{quote}{value}{quote}"))
        }
    }
}

enum Ending {
    Yaml,
    Json,
    Toml,
}

fn ending(path: &Path) -> Option<Ending> {
    match path.extension()?.to_str()? {
        "yaml" | "yml" => Some(Ending::Yaml),
        "json" => Some(Ending::Json),
        "toml" => Some(Ending::Toml),
        _ => None,
    }
}

/// Whether a text names a configuration file.
fn is_named(text: &str) -> bool {
    text.len() < 1000 && ending(Path::new(text)).is_some()
}

struct Found {
    keys: Vec<String>,
    range: Range<usize>,
    kind: OptKind,
    value: String,
}

impl Found {
    fn option(self, file: &Path) -> Opt {
        let path = self.keys.join(".");
        // What only an evaluation reads is not a setting of the training.
        let evaluates = ["eval", "val.", "val_", "valid", "test"].iter().any(|word| path.contains(word));
        let name = if evaluates { path } else { self.keys.last().cloned().unwrap_or_default() };
        Opt {
            flags: Vec::new(),
            name,
            kind: self.kind,
            default: Some(self.value),
            choices: Vec::new(),
            parameter: false,
            written: Some(Written { file: file.to_owned(), keys: self.keys, range: self.range }),
        }
    }
}

/// The settings of a YAML file; JSON is read as YAML too.
fn of_yaml(text: &str) -> Option<Vec<Found>> {
    let documents = MarkedYaml::load_from_str(text).ok()?;
    let [document] = documents.as_slice() else { return None };
    document.data.as_mapping()?;
    // The parser counts letters.
    let mut bytes: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
    bytes.push(text.len());
    let mut found = Vec::new();
    walk_yaml(document, &mut Vec::new(), &bytes, text, &mut found);
    Some(found)
}

fn walk_yaml(node: &MarkedYaml<'_>, keys: &mut Vec<String>, bytes: &[usize], text: &str, found: &mut Vec<Found>) {
    if let YamlData::Mapping(entries) = &node.data {
        if keys.len() == DEEPEST {
            return;
        }
        for (key, value) in entries {
            if let Some(key) = key.data.as_str() {
                keys.push(key.to_owned());
                walk_yaml(value, keys, bytes, text, found);
                keys.pop();
            }
        }
        return;
    }
    let (kind, value) = match &node.data {
        YamlData::Value(Scalar::Boolean(value)) => {
            (OptKind::Truth, if *value { "True".to_owned() } else { "False".to_owned() })
        }
        YamlData::Value(Scalar::Integer(value)) => (OptKind::Value, value.to_string()),
        YamlData::Value(Scalar::FloatingPoint(value)) => (OptKind::Value, value.to_string()),
        YamlData::Value(Scalar::String(value)) => (OptKind::Value, value.to_string()),
        YamlData::Value(Scalar::Null) => (OptKind::Value, "None".to_owned()),
        _ => return,
    };
    let place = |index: usize| bytes.get(index).copied();
    let (Some(start), Some(end)) = (place(node.span.start.index()), place(node.span.end.index())) else { return };
    // The end of a plain value may lie behind the spaces after it.
    let Some(written) = text.get(start..end).map(str::trim_end).filter(|written| !written.is_empty()) else { return };
    // Python's usual reader knows more words for them than the parser.
    let (kind, value) = match written.to_lowercase().as_str() {
        "yes" | "on" => (OptKind::Truth, "True".to_owned()),
        "no" | "off" => (OptKind::Truth, "False".to_owned()),
        _ => (kind, value),
    };
    found.push(Found { keys: keys.clone(), range: start..start + written.len(), kind, value });
}

fn of_toml(text: &str) -> Option<Vec<Found>> {
    let document = toml_edit::Document::parse(text).ok()?;
    let mut found = Vec::new();
    walk_toml(document.as_item(), &mut Vec::new(), &mut found);
    Some(found)
}

fn walk_toml(item: &toml_edit::Item, keys: &mut Vec<String>, found: &mut Vec<Found>) {
    if let Some(table) = item.as_table_like() {
        if keys.len() == DEEPEST {
            return;
        }
        for (key, value) in table.iter() {
            keys.push(key.to_owned());
            walk_toml(value, keys, found);
            keys.pop();
        }
        return;
    }
    let Some(value) = item.as_value() else { return };
    let (kind, text) = match value {
        toml_edit::Value::Boolean(value) => {
            (OptKind::Truth, if *value.value() { "True".to_owned() } else { "False".to_owned() })
        }
        toml_edit::Value::Integer(value) => (OptKind::Value, value.value().to_string()),
        toml_edit::Value::Float(value) => (OptKind::Value, value.value().to_string()),
        toml_edit::Value::String(value) => (OptKind::Value, value.value().clone()),
        _ => return,
    };
    if let Some(range) = value.span() {
        found.push(Found { keys: keys.clone(), range, kind, value: text });
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
    let one = |scope: At<'a>| match crate::names::assigned(scope, name).as_slice() {
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
mod properties;

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

    #[test]
    fn values_are_spelled_as_their_files_want() {
        assert_eq!(spelled(Path::new("a.yaml"), "True", "false"), "true");
        assert_eq!(spelled(Path::new("a.yaml"), "bf16", "'no'"), "'bf16'");
        assert_eq!(spelled(Path::new("a.yaml"), "bf16", "no"), "bf16");
        assert_eq!(spelled(Path::new("a.json"), "bf16", "null"), "\"bf16\"");
        assert_eq!(spelled(Path::new("a.toml"), "8", "16"), "8");
        let kinds = Document::parse(Path::new("a.yaml"), "a: no\nb: 'no'\nc: off\n".to_owned()).unwrap();
        let kinds: Vec<OptKind> = kinds.settings.iter().map(|option| option.kind).collect();
        assert_eq!(kinds, [OptKind::Truth, OptKind::Value, OptKind::Truth]);
    }

    #[test]
    fn what_is_data_or_a_library_s_is_no_file_of_settings() {
        let parse = |name: &str, text: &str| Document::parse(Path::new(name), text.to_owned()).is_some();
        assert!(parse("a.yaml", "a: 1\n"));
        assert!(!parse("a.json", "[1, 2]"));
        assert!(!parse("ds.json", "{\"zero_optimization\": {\"stage\": 2}, \"gradient_accumulation_steps\": 1}"));
        assert!(!parse("a.yaml", "a: [\n"));
        assert!(!parse("a.txt", "a: 1\n"));
    }
}

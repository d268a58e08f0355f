//! Finds the configuration files that a program reads, and writes a remedy's settings in their form.

use std::ops::Range;

use serde_json::{Map, Value};

use super::arguments::same;
use super::document::{Document, entries, scalar};
use super::edits::Edit;
use super::line::Line;
use super::program::Program;
use crate::framework::Framework;
use crate::remedy::{Kind, Written};

/// Where a program's configuration file is named on its command line.
#[derive(Clone, Copy)]
enum Named {
    /// Behind this option.
    Behind(&'static str),
    /// It is the first argument.
    First,
    /// It is the only argument.
    Alone,
}

/// What counts where both say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWord {
    /// The command line.
    Line,
    /// The file: there is no other place to say it.
    File,
}

/// The files whose keys are the program's own settings. Of several that a line names, the first here counts.
const FILES: &[(Framework, Named, LastWord)] = &[
    (Framework::Axolotl, Named::First, LastWord::Line),
    (Framework::LlamaFactory, Named::First, LastWord::Line),
    (Framework::Torchtune, Named::Behind("--config"), LastWord::Line),
    (Framework::Trl, Named::Behind("--config"), LastWord::Line),
    (Framework::Vllm, Named::Behind("--config"), LastWord::Line),
    (Framework::Kohya, Named::Behind("--config_file"), LastWord::Line),
    (Framework::TensorrtLlm, Named::Behind("--extra_llm_api_options"), LastWord::File),
    (Framework::TensorrtLlm, Named::Behind("--config"), LastWord::File),
    // `HfArgumentParser.parse_json_file` and its like are called where a file is all there is.
    (Framework::Transformers, Named::Alone, LastWord::File),
    (Framework::Trl, Named::Alone, LastWord::File),
    (Framework::Peft, Named::Alone, LastWord::File),
];

/// A configuration file of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The word that names it.
    pub name: String,
    /// What counts where both say something.
    pub last_word: LastWord,
}

/// The file that holds the program's own settings, where the line names one that was read.
pub fn of(line: &Line, program: &Program) -> Option<Config> {
    FILES.iter().filter(|(framework, ..)| *framework == program.framework).find_map(|(_, named, last_word)| {
        let name = match named {
            Named::Behind(option) => behind(line, &program.arguments, option)?,
            Named::First => line.words[program.arguments.clone()].first()?,
            Named::Alone => alone(line, &program.arguments)?,
        };
        line.is_file(name).then(|| Config { name: name.to_owned(), last_word: *last_word })
    })
}

/// The only argument.
pub fn alone<'l>(line: &'l Line, arguments: &Range<usize>) -> Option<&'l str> {
    match &line.words[arguments.clone()] {
        [only] => Some(only),
        _ => None,
    }
}

/// DeepSpeed's own file, which several libraries take by the same two options.
pub fn of_deepspeed<'l>(line: &'l Line, program: &Program) -> Option<&'l str> {
    let options = ["--deepspeed", "--deepspeed_config"];
    let name = options.iter().find_map(|option| behind(line, &program.arguments, option))?;
    line.is_file(name).then_some(name)
}

/// The file of `accelerate launch`.
pub fn of_accelerate<'l>(line: &'l Line, program: &Program) -> Option<&'l str> {
    let name = behind(line, program.accelerate.as_ref()?, "--config_file")?;
    line.is_file(name).then_some(name)
}

/// What an option is set to, the last time.
fn behind<'l>(line: &'l Line, range: &Range<usize>, option: &str) -> Option<&'l str> {
    let words = line.words.get(range.clone())?;
    words.iter().enumerate().rev().find_map(|(at, word)| match word.split_once('=') {
        Some((name, value)) if same(Framework::Transformers, name, option) => Some(value),
        None if same(Framework::Transformers, word, option) => words.get(at + 1).map(String::as_str),
        _ => None,
    })
}

/// What a file says to an argument, by the name that the argument has on the line.
pub fn setting(document: &Document, framework: Framework, argument: &str) -> Option<String> {
    match document.get(&path(document, framework, argument))? {
        Value::String(word) => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// The keys under which a file has an argument: dots go down, and an older name that it uses is kept.
fn path<'a>(document: &'a Document, framework: Framework, argument: &'a str) -> Vec<&'a str> {
    let bare = argument.trim_start_matches('-');
    if framework == Framework::Torchtune {
        return bare.split('.').collect();
    }
    let known = document.keys().find(|key| same(framework, &format!("--{key}"), &format!("--{bare}")));
    vec![known.unwrap_or(bare)]
}

/// What a remedy's words set in the program's own file, where they can be said there.
pub fn settings(
    document: &Document,
    framework: Framework,
    written: &Written,
    text: &str,
    edits: &[Edit],
) -> Option<Map<String, Value>> {
    if written.kind == Kind::Config && text.contains(": ") {
        return entries(text);
    }
    if edits.is_empty() {
        return None;
    }
    let mut settings = Map::new();
    for edit in edits {
        let (name, value) = match edit {
            Edit::Set { name, values } => (name, value(values)),
            // What is not there need not go, and what is there is switched off.
            Edit::Remove { name } => match document.get(&path(document, framework, name)) {
                None | Some(Value::Bool(false)) => continue,
                Some(Value::Bool(true)) => (name, false.into()),
                Some(_) => return None,
            },
            Edit::Variable { .. } => return None,
        };
        for rival in super::arguments::rivals(framework, name) {
            let path = path(document, framework, rival);
            if document.get(&path) == Some(&Value::Bool(true)) {
                put(&mut settings, &spelled(&path), false.into());
            }
        }
        put(&mut settings, &spelled(&path(document, framework, name)), value);
    }
    Some(settings)
}

/// The keys as a file has them: with underscores.
fn spelled(path: &[&str]) -> Vec<String> {
    path.iter().map(|key| key.replace('-', "_")).collect()
}

fn value(values: &[String]) -> Value {
    match values {
        [] => true.into(),
        [one] => scalar(one),
        many => many.iter().map(|word| scalar(word)).collect(),
    }
}

fn put(settings: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [key] => {
            settings.insert(key.clone(), value);
        }
        [key, rest @ ..] => {
            if let Value::Object(inner) = settings.entry(key.clone()).or_insert_with(|| Map::new().into()) {
                put(inner, rest, value);
            }
        }
    }
}

/// What options of `accelerate launch` are in its own file.
pub fn of_launcher(edits: &[Edit]) -> Option<Map<String, Value>> {
    if edits.is_empty() {
        return None;
    }
    let mut settings = Map::new();
    for edit in edits {
        let Edit::Set { name, values } = edit else { return None };
        let key = name.trim_start_matches('-').replace('-', "_");
        match key.as_str() {
            "use_deepspeed" => put(&mut settings, &["distributed_type".into()], "DEEPSPEED".into()),
            "use_fsdp" => put(&mut settings, &["distributed_type".into()], "FSDP".into()),
            "multi_gpu" => put(&mut settings, &["distributed_type".into()], "MULTI_GPU".into()),
            _ if key.starts_with("fsdp_") => put(&mut settings, &["fsdp_config".into(), key], value(values)),
            _ if key.starts_with("zero") || key.starts_with("offload_") || key.starts_with("deepspeed_") => {
                put(&mut settings, &["deepspeed_config".into(), key], value(values));
            }
            _ => put(&mut settings, &[key], value(values)),
        }
    }
    Some(settings)
}

/// What a fragment of DeepSpeed's file changes in one: where the program's own argument says it too, what is left to
/// that argument ("auto") stays so, and what is not there is not needed.
pub fn of_fragment(document: &Document, fragment: &str, said_elsewhere: bool) -> Option<Map<String, Value>> {
    let fragment: Map<String, Value> = serde_json::from_str(&format!("{{{fragment}}}")).ok()?;
    Some(if said_elsewhere { fixed(document, &[], &fragment) } else { fragment })
}

/// The part of the changes that goes against what a file says.
fn fixed(document: &Document, above: &[&str], changes: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, change) in changes {
        let path: Vec<&str> = above.iter().copied().chain([key.as_str()]).collect();
        match (document.get(&path), change) {
            (None, _) => {}
            (Some(Value::String(word)), _) if word == "auto" => {}
            (Some(Value::Object(_)), Value::Object(inner)) => {
                let inner = fixed(document, &path, inner);
                if !inner.is_empty() {
                    kept.insert(key.clone(), inner.into());
                }
            }
            (Some(known), change) if known == change => {}
            (Some(_), change) => {
                kept.insert(key.clone(), change.clone());
            }
        }
    }
    kept
}

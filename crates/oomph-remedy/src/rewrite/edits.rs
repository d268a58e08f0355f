//! Turns a remedy's settings into changes of single arguments, and makes them.

use std::ops::Range;

use super::arguments::{Style, Takes, places, rivals, style};
use super::program::Program;
use super::{CannotRewrite, Change, quoted};
use crate::framework::Framework;
use crate::remedy::{Kind, Remedy, Written};

/// A change of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The argument gets these values; none for a switch.
    Set {
        /// The argument's name, with its dashes.
        name: String,
        /// Its values.
        values: Vec<String>,
    },
    /// The argument goes.
    Remove {
        /// The argument's name, with its dashes.
        name: String,
    },
    /// An environment variable gets a value.
    Variable {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
    },
}

/// Why a remedy's words are no changes of arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum NoEdit {
    /// They are something else.
    NotAnArgument,
    /// They leave a value to the reader.
    Open(String),
    /// They name a file that has to be written first.
    File(String),
}

impl NoEdit {
    pub fn of(self, remedy: &Remedy, framework: Framework) -> CannotRewrite {
        let remedy = remedy.id.clone();
        match self {
            NoEdit::NotAnArgument => CannotRewrite::NotAnArgument { remedy, framework },
            NoEdit::Open(name) => CannotRewrite::UnknownValue { remedy, name },
            NoEdit::File(file) => CannotRewrite::NeedsFile { remedy, file },
        }
    }
}

/// Words that stand for a value which the reader has to choose.
const OPEN: &[&str] = &["N", "MIB", "MORE_MIB", "BYTES", "INDEX", "INDEX_OF_A_FREE_GPU", "MODEL", "MODEL-Q4_K_M.gguf"];

/// The changes that a remedy's words ask for, once their names in braces are filled in.
pub fn parse(written: &Written, text: &str, framework: Framework) -> Result<Vec<Edit>, NoEdit> {
    // What follows three spaces and a hash is for the reader.
    let text = text.split("   #").next().unwrap_or(text).trim();
    let edits = match written.kind {
        Kind::Env => variables(text)?,
        Kind::Config if style(written.framework) != Style::Assignments || text.contains(": ") => {
            keys(text, written.framework)?
        }
        _ if text.starts_with("remove ") => removals(text),
        _ => match style(written.framework) {
            Style::Flags => flags(text)?,
            Style::Assignments => assignments(text)?,
            Style::Pairs => pairs(text)?,
        },
    };
    if edits.is_empty() {
        return Err(NoEdit::NotAnArgument);
    }
    for edit in &edits {
        let values: &[String] = match edit {
            Edit::Set { values, .. } => values,
            Edit::Variable { value, .. } => std::slice::from_ref(value),
            Edit::Remove { .. } => &[],
        };
        for value in values {
            if OPEN.contains(&value.as_str()) || value.contains("MODEL") {
                return Err(NoEdit::Open(value.clone()));
            }
            // A model file is the user's; a configuration file of a remedy has to be made.
            if framework != Framework::LlamaCpp && (value.ends_with(".json") || value.ends_with(".yaml")) {
                return Err(NoEdit::File(value.clone()));
            }
        }
    }
    Ok(edits)
}

fn split(text: &str) -> Result<Vec<String>, NoEdit> {
    shlex::split(text).ok_or(NoEdit::NotAnArgument)
}

fn variables(text: &str) -> Result<Vec<Edit>, NoEdit> {
    split(text)?
        .into_iter()
        .map(|word| {
            let (name, value) = word.split_once('=').ok_or(NoEdit::NotAnArgument)?;
            Ok(Edit::Variable { name: name.to_owned(), value: value.to_owned() })
        })
        .collect()
}

fn removals(text: &str) -> Vec<Edit> {
    let list = text.split(';').next().unwrap_or(text);
    list.split_whitespace()
        .filter(|word| word.starts_with('-'))
        .map(|word| Edit::Remove { name: word.trim_end_matches(',').to_owned() })
        .collect()
}

fn flags(text: &str) -> Result<Vec<Edit>, NoEdit> {
    let mut edits: Vec<Edit> = Vec::new();
    for word in split(text)? {
        if word.starts_with('-') && word.parse::<f64>().is_err() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), vec![value.to_owned()]),
                None => (word, Vec::new()),
            };
            edits.push(Edit::Set { name, values: value });
        } else if let Some(Edit::Set { values, .. }) = edits.last_mut() {
            values.push(word);
        } else {
            return Err(NoEdit::NotAnArgument);
        }
    }
    Ok(edits)
}

fn assignments(text: &str) -> Result<Vec<Edit>, NoEdit> {
    split(text)?
        .into_iter()
        .map(|word| {
            let (name, value) = word.split_once('=').ok_or(NoEdit::NotAnArgument)?;
            Ok(Edit::Set { name: name.to_owned(), values: vec![value.to_owned()] })
        })
        .collect()
}

fn pairs(text: &str) -> Result<Vec<Edit>, NoEdit> {
    let words = split(text)?;
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(NoEdit::NotAnArgument);
    }
    Ok(pairs.iter().map(|[name, value]| Edit::Set { name: name.clone(), values: vec![value.clone()] }).collect())
}

/// Keys of a configuration file that the command line can override: `key=value` for LLaMA-Factory, `--key value` and
/// `--key` / `--no-key` for Axolotl.
fn keys(text: &str, framework: Framework) -> Result<Vec<Edit>, NoEdit> {
    text.split(';')
        .map(|entry| {
            let (key, value) = entry.trim().split_once(": ").ok_or(NoEdit::NotAnArgument)?;
            if value.contains(['{', '[', ':']) || key.contains(' ') {
                return Err(NoEdit::NotAnArgument);
            }
            let (key, value) = (key.to_owned(), value.trim().to_owned());
            Ok(match framework {
                Framework::Axolotl => {
                    let dashed = key.replace('_', "-");
                    match value.as_str() {
                        "true" => Edit::Set { name: format!("--{dashed}"), values: Vec::new() },
                        "false" => Edit::Set { name: format!("--no-{dashed}"), values: Vec::new() },
                        _ => Edit::Set { name: format!("--{dashed}"), values: vec![value] },
                    }
                }
                _ => Edit::Set { name: key, values: vec![value] },
            })
        })
        .collect()
}

/// The words with the changes made, the variables to set, and what changed.
pub fn apply(
    line: &[String],
    program: &Program,
    owner: Framework,
    edits: &[Edit],
) -> (Vec<String>, Vec<(String, String)>, Vec<Change>) {
    let mut words = line.to_vec();
    let mut environment = Vec::new();
    let mut changes = Vec::new();
    // Options of the launcher precede the program's, so that a change there moves nothing that is still needed.
    let (framework, mut range) = match (&program.accelerate, owner) {
        (Some(range), Framework::Accelerate) => (Framework::Accelerate, range.clone()),
        _ => (program.framework, program.arguments.clone()),
    };
    for edit in edits {
        match edit {
            Edit::Variable { name, value } => {
                variable(&mut words, name, value, &mut range, &mut environment, &mut changes);
            }
            Edit::Remove { name } => {
                // Whether its value belongs to it is seen from what follows; a switch is followed by another flag.
                remove(&mut words, &mut range, framework, name, Takes::Anything, &mut changes);
            }
            Edit::Set { name, values } => {
                for rival in rivals(framework, name) {
                    remove(&mut words, &mut range, framework, rival, Takes::YesNoOrNumber, &mut changes);
                }
                set(&mut words, &mut range, framework, name, values, &mut changes);
            }
        }
    }
    (words, environment, changes)
}

fn shown(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// An assignment in front of the command is changed in place; a new one goes to the environment.
fn variable(
    words: &mut [String],
    name: &str,
    value: &str,
    range: &mut Range<usize>,
    environment: &mut Vec<(String, String)>,
    changes: &mut Vec<Change>,
) {
    let before =
        words[..range.start].iter_mut().find(|word| word.split_once('=').is_some_and(|(known, _)| known == name));
    match before {
        Some(word) => {
            let after = format!("{name}={value}");
            if *word != after {
                changes.push(Change { file: None, before: Some(quoted(word)), after: Some(quoted(&after)) });
                *word = after;
            }
        }
        None => environment.push((name.to_owned(), value.to_owned())),
    }
}

fn remove(
    words: &mut Vec<String>,
    range: &mut Range<usize>,
    framework: Framework,
    name: &str,
    takes: Takes,
    changes: &mut Vec<Change>,
) {
    for place in places(words, range, framework, name, takes).into_iter().rev() {
        changes.push(Change { file: None, before: Some(shown(&words[place.words.clone()])), after: None });
        range.end -= place.words.len();
        words.drain(place.words);
    }
}

fn set(
    words: &mut Vec<String>,
    range: &mut Range<usize>,
    framework: Framework,
    name: &str,
    values: &[String],
    changes: &mut Vec<Change>,
) {
    let takes = if values.is_empty() { Takes::YesNoOrNumber } else { Takes::Anything };
    let Some(mut place) = places(words, range, framework, name, takes).pop() else {
        let new = new_words(framework, name, values);
        changes.push(Change { file: None, before: None, after: Some(shown(&new)) });
        words.splice(range.end..range.end, new.iter().cloned());
        range.end += new.len();
        return;
    };
    // A flag with several values has them behind it, one word each.
    if style(framework) == Style::Flags && place.words.len() > 1 {
        let more = words[place.words.end..range.end].iter().take_while(|word| !word.starts_with('-'));
        place.words.end += more.take(values.len().saturating_sub(1)).count();
    }
    let old = words[place.words.clone()].to_vec();
    let is_set = match (values, &place.value) {
        ([], before) => !before.as_deref().is_some_and(|before| before.eq_ignore_ascii_case("false")),
        // A bare flag of a yes-or-no argument means yes.
        ([value], None) => value.eq_ignore_ascii_case("true"),
        ([value], Some(before)) => value.eq_ignore_ascii_case(before),
        (values, Some(_)) => old[1..] == *values,
        (_, None) => false,
    };
    if is_set {
        return;
    }
    let spelled = old[0].split('=').next().unwrap_or(name);
    let new = match style(framework) {
        Style::Flags if old.len() == 1 && old[0].contains('=') && values.len() == 1 => {
            vec![format!("{spelled}={}", values[0])]
        }
        Style::Flags => std::iter::once(spelled.to_owned()).chain(values.iter().cloned()).collect(),
        Style::Assignments => vec![format!("{spelled}={}", values.join(","))],
        Style::Pairs => vec![old[0].clone(), values.join(" ")],
    };
    changes.push(Change { file: None, before: Some(shown(&old)), after: Some(shown(&new)) });
    range.end = range.end - old.len() + new.len();
    words.splice(place.words, new);
}

fn new_words(framework: Framework, name: &str, values: &[String]) -> Vec<String> {
    match style(framework) {
        Style::Assignments => vec![format!("{name}={}", values.join(","))],
        Style::Flags | Style::Pairs => std::iter::once(name.to_owned()).chain(values.iter().cloned()).collect(),
    }
}

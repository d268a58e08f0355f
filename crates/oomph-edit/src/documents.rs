//! Reads configuration files in YAML, JSON and TOML, and the plain values in them.

use std::ops::Range;
use std::path::Path;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use crate::opt::{Opt, OptKind, Written};

/// A file with more bytes holds data.
const LONGEST: usize = 1 << 20;

/// A file with more values holds data.
const MOST_SETTINGS: usize = 2000;

/// How deep tables are followed.
const DEEPEST: usize = 8;

/// Keys of files that another part of oomph changes, since a library reads them: DeepSpeed's.
const OF_LIBRARIES: &[&str] = &["zero_optimization", "train_micro_batch_size_per_gpu"];

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
pub(crate) fn is_named(text: &str) -> bool {
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

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

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

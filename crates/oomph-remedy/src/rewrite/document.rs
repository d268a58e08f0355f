//! Reads and sets keys of a configuration file, and keeps its comments, order and spelling.
//!
//! What an editor of one format has written is read again by a reader that knows nothing of it: a file that does not say
//! then what was meant is not offered to anybody.

use std::str::FromStr;

use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value};
use yaml_edit::YamlFile;

/// The depth of brackets from which a file is not a configuration: its readers call themselves for each level.
const DEEPEST: usize = 64;
/// The most bytes of a configuration file.
const LONGEST: usize = 1 << 20;

/// How a configuration file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON, without comments.
    Json,
    /// TOML.
    Toml,
}

impl Format {
    /// The format of a file by the end of its name.
    pub fn of(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// What a text of this format says, where it is one mapping.
    fn read(self, text: &str) -> Option<Map<String, Value>> {
        if text.len() > LONGEST || is_deep(text) {
            return None;
        }
        let value = match self {
            Self::Yaml => yaml(text)?,
            Self::Json => serde_json::from_str(text).ok()?,
            Self::Toml => serde_json::to_value(toml::from_str::<toml::Table>(text).ok()?).ok()?,
        };
        match value {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }
}

/// A configuration file's text and what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    format: Format,
    text: String,
    value: Map<String, Value>,
}

impl Document {
    /// Reads a file. `None` where it is not one mapping of this format.
    pub fn read(format: Format, text: &str) -> Option<Self> {
        Some(Self { format, text: text.to_owned(), value: format.read(text)? })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of a key, which may be nested in others.
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.value.get(*first)?, |value, key| value.get(key))
    }

    /// The keys of the outermost mapping.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.value.keys().map(String::as_str)
    }

    /// What this document says to some keys, as its format has it on one line; `None` where it says nothing.
    pub fn shown(&self, keys: &Map<String, Value>) -> Option<String> {
        let shown: Vec<String> = keys
            .keys()
            .filter_map(|key| {
                let value = serde_json::to_string(self.value.get(key)?).ok()?;
                Some(match self.format {
                    Format::Json => format!("\"{key}\": {value}"),
                    Format::Yaml => format!("{key}: {}", bare(&value)),
                    Format::Toml => format!("{key} = {value}"),
                })
            })
            .collect();
        (!shown.is_empty()).then(|| shown.join(if self.format == Format::Json { ", " } else { "; " }))
    }

    /// The document with these keys set. A mapping is merged into the one that is there, and a list gets what it lacks.
    ///
    /// `None` where the file cannot be changed so without touching something else.
    pub fn with(&self, changes: &Map<String, Value>) -> Option<Self> {
        let mut meant = self.value.clone();
        merge(&mut meant, changes);
        let text = match self.format {
            Format::Yaml => changed_yaml(&self.text, &self.value, changes)?,
            Format::Json => changed_json(&self.text, &self.value, changes)?,
            Format::Toml => changed_toml(&self.text, &self.value, changes)?,
        };
        let changed = Self::read(self.format, &text)?;
        (changed.value == meant).then_some(changed)
    }
}

/// A value as it is written on a command line: a bare word as a reader of YAML takes it, or JSON.
pub fn scalar(word: &str) -> Value {
    if word.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(word)
    {
        return value;
    }
    match Scalar::parse_from_cow(word.into()) {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => value.into(),
        Scalar::Integer(value) => value.into(),
        Scalar::FloatingPoint(value) if value.is_finite() => number(value.into_inner()),
        Scalar::FloatingPoint(_) => word.into(),
        // `True` is what Python's own YAML reader takes for yes.
        Scalar::String(value) if value == "True" => true.into(),
        Scalar::String(value) if value == "False" => false.into(),
        Scalar::String(value) => value.into(),
    }
}

/// Entries as the catalogue has them: `key: value; key: {key: value}`.
pub fn entries(words: &str) -> Option<Map<String, Value>> {
    let mut all = Map::new();
    for entry in words.split(';').map(str::trim) {
        if is_deep(entry) {
            return None;
        }
        let Value::Object(read) = yaml(entry)? else { return None };
        merge(&mut all, &read);
    }
    (!all.is_empty()).then_some(all)
}

/// Puts the changes into a mapping.
fn merge(into: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (key, change) in changes {
        match (into.get_mut(key), change) {
            (Some(Value::Object(known)), Value::Object(change)) => merge(known, change),
            (Some(Value::Array(known)), Value::Array(change)) => {
                let missing: Vec<Value> = change.iter().filter(|item| !known.contains(item)).cloned().collect();
                known.extend(missing);
            }
            _ => {
                into.insert(key.clone(), change.clone());
            }
        }
    }
}

/// A number without a fraction is written without one.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { Value::from(value as i64) } else { Value::from(value) }
}

fn is_deep(text: &str) -> bool {
    let mut depth: usize = 0;
    for letter in text.bytes() {
        match letter {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return true;
        }
    }
    // In YAML a level is a dash, or a further indentation.
    text.lines().any(|line| {
        let lead = line.bytes().take_while(|letter| b" \t-?:".contains(letter)).count();
        lead > 2 * DEEPEST
    })
}

fn yaml(text: &str) -> Option<Value> {
    let documents = Yaml::load_from_str(text).ok()?;
    match documents.as_slice() {
        [one] => value_of(one),
        _ => None,
    }
}

fn value_of(node: &Yaml<'_>) -> Option<Value> {
    Some(match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        Yaml::Value(Scalar::Integer(value)) => (*value).into(),
        Yaml::Value(Scalar::FloatingPoint(value)) if value.is_finite() => number(value.into_inner()),
        Yaml::Value(Scalar::FloatingPoint(value)) => value.to_string().into(),
        Yaml::Value(Scalar::String(value)) => value.as_ref().into(),
        Yaml::Sequence(items) => Value::Array(items.iter().map(value_of).collect::<Option<_>>()?),
        Yaml::Mapping(entries) => {
            let entry = |(key, value): (&Yaml<'_>, &Yaml<'_>)| {
                let key = match value_of(key)? {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                Some((key, value_of(value)?))
            };
            Value::Object(entries.iter().map(entry).collect::<Option<_>>()?)
        }
        Yaml::Tagged(_, node) => value_of(node)?,
        Yaml::Representation(..) | Yaml::Alias(_) | Yaml::BadValue => return None,
    })
}

fn changed_yaml(text: &str, value: &Map<String, Value>, changes: &Map<String, Value>) -> Option<String> {
    // An editor needs a line to write behind.
    let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
    let file = YamlFile::from_str(&text).ok()?;
    set_yaml(&file.document()?.as_mapping()?, value, changes)?;
    Some(file.to_string())
}

fn set_yaml(mapping: &yaml_edit::Mapping, value: &Map<String, Value>, changes: &Map<String, Value>) -> Option<()> {
    for (key, change) in changes {
        match (value.get(key), change) {
            (Some(Value::Object(known)), Value::Object(change)) => {
                set_yaml(&mapping.get_mapping(key)?, known, change)?;
            }
            (Some(Value::Array(known)), Value::Array(change)) => {
                let sequence = mapping.get_sequence(key)?;
                for item in change.iter().filter(|item| !known.contains(item)) {
                    sequence.push(yaml_node(item)?);
                }
            }
            (_, change) => mapping.set(key.as_str(), yaml_node(change)?),
        }
    }
    Some(())
}

/// A word of JSON without its quotes, where YAML needs none.
fn bare(json: &str) -> &str {
    let word = json.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
    word.filter(|word| is_plain(word)).unwrap_or(json)
}

/// A value as a node that an editor takes. Whatever JSON can say is YAML too.
fn yaml_node(value: &Value) -> Option<yaml_edit::YamlNode> {
    let written = match value {
        // A word that stays the same word without its quotes needs none.
        Value::String(word) if is_plain(word) && scalar(word) == *value => word.clone(),
        value => serde_json::to_string(value).ok()?,
    };
    YamlFile::from_str(&format!("key: {written}\n")).ok()?.document()?.as_mapping()?.get("key")
}

fn is_plain(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphanumeric())
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./+".contains(letter))
        // To readers of YAML 1.1, as Python's is, these are no words.
        && !matches!(word.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off" | "y" | "n")
}

fn changed_json(text: &str, value: &Map<String, Value>, changes: &Map<String, Value>) -> Option<String> {
    let root = CstRootNode::parse(text, &jsonc_parser::ParseOptions::default()).ok()?;
    set_json(&root.object_value()?, value, changes)?;
    Some(root.to_string())
}

fn set_json(object: &CstObject, value: &Map<String, Value>, changes: &Map<String, Value>) -> Option<()> {
    for (key, change) in changes {
        match (value.get(key), change) {
            (Some(Value::Object(known)), Value::Object(change)) => {
                set_json(&object.object_value(key)?, known, change)?;
            }
            (Some(Value::Array(known)), Value::Array(change)) => {
                let array = object.array_value(key)?;
                for item in change.iter().filter(|item| !known.contains(item)) {
                    array.append(json_node(item));
                }
            }
            (Some(_), change) => object.get(key)?.set_value(json_node(change)),
            (None, change) => {
                object.append(key, json_node(change));
            }
        }
    }
    Some(())
}

fn json_node(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(json_node).collect()),
        Value::Object(map) => {
            CstInputValue::Object(map.iter().map(|(key, value)| (key.clone(), json_node(value))).collect())
        }
    }
}

fn changed_toml(text: &str, value: &Map<String, Value>, changes: &Map<String, Value>) -> Option<String> {
    let mut document = text.parse::<toml_edit::DocumentMut>().ok()?;
    set_toml(document.as_table_mut(), value, changes)?;
    Some(document.to_string())
}

fn set_toml(
    table: &mut dyn toml_edit::TableLike,
    value: &Map<String, Value>,
    changes: &Map<String, Value>,
) -> Option<()> {
    for (key, change) in changes {
        match (value.get(key), change) {
            (Some(Value::Object(known)), Value::Object(change)) => {
                set_toml(table.get_mut(key)?.as_table_like_mut()?, known, change)?;
            }
            (Some(Value::Array(known)), Value::Array(change)) => {
                let array = table.get_mut(key)?.as_array_mut()?;
                for item in change.iter().filter(|item| !known.contains(item)) {
                    array.push(toml_node(item)?);
                }
            }
            (_, change) => {
                let mut new = toml_node(change)?;
                if let Some(old) = table.get(key).and_then(toml_edit::Item::as_value) {
                    *new.decor_mut() = old.decor().clone();
                }
                table.insert(key, toml_edit::Item::Value(new));
            }
        }
    }
    Some(())
}

fn toml_node(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => (*value).into(),
        Value::Number(value) => match value.as_i64() {
            Some(value) => value.into(),
            None => value.as_f64()?.into(),
        },
        Value::String(value) => value.as_str().into(),
        Value::Array(items) => {
            toml_edit::Value::Array(items.iter().map(toml_node).collect::<Option<toml_edit::Array>>()?)
        }
        Value::Object(map) => {
            let mut table = toml_edit::InlineTable::new();
            for (key, value) in map {
                table.insert(key, toml_node(value)?);
            }
            toml_edit::Value::InlineTable(table)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn changed(format: Format, text: &str, changes: Value) -> Option<String> {
        let Value::Object(changes) = changes else { panic!("a mapping is needed") };
        Some(Document::read(format, text)?.with(&changes)?.text().to_owned())
    }

    #[test]
    fn a_yaml_file_keeps_its_comments_and_its_order() {
        let text = "# my run\nbase_model: x  # the model\nmicro_batch_size: 4   # per card\nplugins:\n  - a.B\n\
                    fsdp_config:\n  offload: false\ndatasets:\n  - path: y\n    type: alpaca\nbf16: auto\n";
        let changes = json!({
            "micro_batch_size": 2, "plugins": ["a.B", "c.D"], "fsdp_config": {"offload": true, "limit": 3},
            "optimizer": "adamw_8bit", "word": "no",
        });
        let after = "# my run\nbase_model: x  # the model\nmicro_batch_size: 2   # per card\nplugins:\n  - a.B\n  - c.D\n\
                     fsdp_config:\n  offload: true\n  limit: 3\ndatasets:\n  - path: y\n    type: alpaca\nbf16: auto\n\
                     optimizer: adamw_8bit\nword: \"no\"\n";
        assert_eq!(changed(Format::Yaml, text, changes).as_deref(), Some(after));
    }

    #[test]
    fn a_json_file_keeps_its_indentation() {
        let text = "{\n    \"stage\": 2,\n    \"zero\": {\"a\": 1}\n}\n";
        let after = changed(Format::Json, text, json!({"zero": {"b": {"device": "cpu"}}, "stage": 3})).unwrap();
        assert!(
            after.starts_with("{\n    \"stage\": 3,\n    \"zero\": {") && after.contains("\"device\": \"cpu\""),
            "{after}"
        );
    }

    #[test]
    fn a_toml_file_keeps_its_comments() {
        let text = "# lora\n[train]\ntrain_batch_size = 4 # per card\n";
        let after = changed(Format::Toml, text, json!({"train": {"train_batch_size": 2, "sdpa": true}})).unwrap();
        assert_eq!(after, "# lora\n[train]\ntrain_batch_size = 2 # per card\nsdpa = true\n");
    }

    #[test]
    fn what_is_no_single_mapping_is_not_a_configuration() {
        for text in ["", "- a\n- b\n", "a: 1\n---\nb: 2\n", "a: [", "just words"] {
            assert_eq!(Document::read(Format::Yaml, text), None, "{text:?}");
        }
        for deep in ["[".repeat(100_000), "- ".repeat(100_000), format!("{{\"a\":{}", "{\"a\":".repeat(100_000))] {
            assert_eq!(Document::read(Format::Yaml, &deep), None);
            assert_eq!(Document::read(Format::Json, &deep), None);
        }
    }

    #[test]
    fn entries_of_the_catalogue_are_read() {
        let read = entries("fsdp_version: 2; fsdp_config: {auto_wrap_policy: X, reshard: true}").unwrap();
        assert_eq!(
            Value::Object(read),
            json!({"fsdp_version": 2, "fsdp_config": {"auto_wrap_policy": "X", "reshard": true}})
        );
        assert_eq!(entries("no entry"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_reader_or_an_editor(text in "[a-z:#&*!|>\\-\\[\\]{},\"' \n\t0-9]{0,120}") {
            for format in [Format::Yaml, Format::Json, Format::Toml] {
                let _ = changed(format, &text, json!({"batch": 2, "a": {"b": [1]}, "c": "x"}));
            }
        }

        #[test]
        fn what_was_set_is_what_is_read(keys in proptest::collection::btree_map("[a-z_]{1,8}", 0i64..1000, 1..6), value in 0i64..1000) {
            let text: String = keys.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            let name = keys.keys().next().cloned().unwrap_or_default();
            let changes = Map::from_iter([(name.clone(), Value::from(value)), ("new key".to_owned(), Value::from(1))]);
            // `n`, `y`, `null` and their like are no names.
            if let Some(read) = Document::read(Format::Yaml, &text) {
                let after = read.with(&changes).expect("plain keys can be set");
                prop_assert_eq!(after.get(&[name.as_str()]), Some(&Value::from(value)));
            }
        }
    }
}

//! Writes `python/oomph/_protocol.py` and its stub: what the hook takes from this crate.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::published::documents;
use crate::{LimitScales, LoopKind, Moment, NamedOwner, Phase, RemedyState, SCHEMAS, Stopped, paths};

const HEAD: &str = r#""""What the hook and the launcher agree on: names of paths, schemas and words.

Generated from crates/oomph-protocol by `cargo run -p xtask -- schemas`; a change here is lost. The shapes of documents are in
`_protocol.pyi`, for type checkers: every Python process of a run imports this module.
"""
"#;

const STUB_HEAD: &str = r"# Generated from crates/oomph-protocol by `cargo run -p xtask -- schemas`; a change here is lost.
from typing import Any, Dict, Final, List, Literal, Tuple, TypedDict, Union

from typing_extensions import NotRequired
";

/// The text of the module: constants alone.
#[must_use]
pub fn module() -> String {
    constants(HEAD, "")
}

/// The text of the module's stub: the constants, and a `TypedDict` for each document and each part of one.
#[must_use]
pub fn stub() -> String {
    let mut text = constants(STUB_HEAD, ": Final");
    let mut types = BTreeMap::new();
    for (_, schema) in documents() {
        types.extend(of_definitions(&schema));
    }
    for definition in types.values() {
        text.push_str(definition);
    }
    text
}

fn constants(head: &str, kind: &str) -> String {
    let mut text = String::from(head);
    // Writing to a string cannot fail.
    let mut add = |about: &str, prefix: &str, pairs: &mut dyn Iterator<Item = (String, &str)>| {
        let _ = writeln!(text, "\n# {about}");
        for (name, value) in pairs {
            let _ = writeln!(text, "{prefix}{name}{kind} = {value:?}");
        }
    };
    let own = |(name, value): &(&str, &'static str)| ((*name).to_owned(), *value);
    add("Paths below the run folder.", "PATH_", &mut paths::ALL.iter().map(own));
    let schemas = SCHEMAS.iter().map(|(name, schema)| ((*name).to_owned(), schema.text));
    add("What documents say that they are.", "SCHEMA_", &mut { schemas });
    macro_rules! vocabulary {
        ($($about:literal $prefix:literal $words:ty,)+) => {
            $(add($about, $prefix, &mut <$words>::ALL.iter().map(|word| (constant(word.name()), word.name())));)+
        };
    }
    vocabulary! {
        "Parts of a program." "PHASE_" Phase,
        "What a named tensor is." "OWNER_" NamedOwner,
        "Why a run ended." "STOPPED_" Stopped,
        "What became of a remedy." "REMEDY_" RemedyState,
        "What a loop does." "LOOP_" LoopKind,
        "Where memory was read." "MOMENT_" Moment,
        "How a pool's limit follows the device." "LIMIT_" LimitScales,
    }
    text
}

fn constant(word: &str) -> String {
    word.replace('-', "_").to_uppercase()
}

/// The types that a schema defines, and its own.
fn of_definitions(schema: &Value) -> BTreeMap<String, String> {
    let mut types = BTreeMap::new();
    let own = schema["title"].as_str().unwrap_or_default();
    let own = own.split('/').next().unwrap_or_default().replace("oomph.", "");
    let own: String = own.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
    types.insert(own.clone(), typed_dict(&own, schema));
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        let text = if definition.get("properties").is_some() {
            typed_dict(name, definition)
        } else {
            format!("\n{name} = {}\n", python_type(definition))
        };
        types.insert(name.clone(), text);
    }
    types
}

/// Written as a call, because some fields are keywords of Python.
fn typed_dict(name: &str, schema: &Value) -> String {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut text = format!("\n{name} = TypedDict(\n    {name:?},\n    {{\n");
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        let kind = python_type(of);
        let kind = if required.contains(&field.as_str()) { kind } else { format!("NotRequired[{kind}]") };
        // As a text, because a type may be defined further down.
        let _ = writeln!(text, "        {field:?}: {kind:?},");
    }
    text + "    },\n)\n"
}

fn python_type(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if let Some(word) = schema.get("const") {
        return format!("Literal[{word}]");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return format!("Literal[{}]", words.join(", "));
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[several].as_array() {
            let types: Vec<String> = choices.iter().map(python_type).collect();
            return format!("Union[{}]", types.join(", "));
        }
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let types: Vec<String> = kinds
                .iter()
                .map(|kind| {
                    let mut one = schema.clone();
                    one["type"] = kind.clone();
                    python_type(&one)
                })
                .collect();
            format!("Union[{}]", types.join(", "))
        }
        Value::String(kind) => match kind.as_str() {
            "null" => "None".to_owned(),
            "string" => "str".to_owned(),
            "integer" => "int".to_owned(),
            "number" => "float".to_owned(),
            "boolean" => "bool".to_owned(),
            "array" => match (&schema["prefixItems"], &schema["items"]) {
                (Value::Array(items), _) => {
                    format!("Tuple[{}]", items.iter().map(python_type).collect::<Vec<_>>().join(", "))
                }
                (_, Value::Null) => "List[Any]".to_owned(),
                (_, items) => format!("List[{}]", python_type(items)),
            },
            _ => match &schema["additionalProperties"] {
                of @ Value::Object(_) => format!("Dict[str, {}]", python_type(of)),
                _ => "Dict[str, Any]".to_owned(),
            },
        },
        _ => "Any".to_owned(),
    }
}

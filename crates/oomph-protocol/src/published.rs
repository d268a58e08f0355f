//! The JSON Schemas of documents, as they are committed under `schemas/`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::compared::Compared;
use crate::device::{Activity, Refusal};
use crate::hook::{HookConfig, HookReport};
use crate::journal::JournalLine;
use crate::names::Names;
use crate::{Document, Schema};

/// The schema of what is written: every field that is always written is required.
#[must_use]
pub fn schema_of<T: JsonSchema>(schema: &str) -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut value = generator.into_root_schema_for::<T>().to_value();
    if let Value::Object(fields) = &mut value {
        fields.insert("title".to_owned(), schema.into());
    }
    sorted(value)
}

/// The same with the names of each object in order. Whether `serde_json` keeps names in the order of insertion is a feature
/// that any crate of a build can turn on, and the files must not depend on it.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> = fields.into_iter().collect();
            fields.into_iter().map(|(name, value)| (name, sorted(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// A schema by which an unknown field is an error as well. It is for tests of whoever writes a document, and not for
/// readers, which pass over fields that a later release has added.
#[must_use]
pub fn strict(mut schema: Value) -> Value {
    close(&mut schema);
    sorted(schema)
}

fn close(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}

/// The documents that the processes of a run exchange as JSON, with their strict schemas.
#[must_use]
pub fn documents() -> Vec<(Schema, Value)> {
    fn of<T: Document + JsonSchema>() -> (Schema, Value) {
        (T::SCHEMA, strict(schema_of::<T>(T::SCHEMA.text)))
    }
    vec![of::<HookConfig>(), of::<HookReport>(), of::<Names>(), of::<Compared>(), of::<Activity>(), of::<Refusal>()]
}

/// The schema of a journal's line. It is not strict: journals are kept, and read by later releases and by others.
#[must_use]
pub fn journal() -> (Schema, Value) {
    (crate::JOURNAL, schema_of::<JournalLine>(crate::JOURNAL.text))
}

/// The name of a schema's file: `oomph.names/1` is in `oomph.names-1.json`.
#[must_use]
pub fn file_name(schema: &str) -> String {
    format!("{}.json", schema.replace('/', "-"))
}

/// The text of a schema's file.
#[must_use]
pub fn text(schema: &Value) -> String {
    format!("{schema:#}\n")
}

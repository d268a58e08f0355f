//! Reads configurations from JSON, with the defaults of their classes for what a file leaves out.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::ArchitectureError;

/// The defaults of transformers' configuration classes by `model_type`, of the keys that are read here. Made by
/// `data/make_defaults.py`.
static DEFAULTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    // The text is part of the program, and a test reads it; a fault in it is no reason to stop.
    serde_json::from_str(include_str!("../../data/defaults.json")).unwrap_or_default()
});

/// Larger widths and counts than any model has; products of a few of them stay far below 2^64.
const LARGEST: u64 = 1 << 32;
/// More layers than any model has; each is written out.
const MOST_LAYERS: u64 = 2000;

/// A configuration and its class's defaults.
#[derive(Clone, Copy)]
pub(super) struct Config<'a> {
    value: &'a Value,
    defaults: &'a Value,
}

impl<'a> Config<'a> {
    /// A configuration whose defaults are those of its own `model_type`.
    pub(super) fn new(value: &'a Value) -> Self {
        let family = value.get("model_type").and_then(Value::as_str).unwrap_or_default();
        Self::of_family(value, family)
    }

    /// A part of a configuration, whose family is known from its place.
    pub(super) fn of_family(value: &'a Value, family: &str) -> Self {
        Self { value, defaults: DEFAULTS.get(family).unwrap_or(&Value::Null) }
    }

    pub(super) fn json(&self) -> &'a Value {
        self.value
    }

    /// The value under the first of these names that the file has, else that the class has. A `null` in the file
    /// overrides a default.
    fn find(&self, names: &[&str]) -> Option<&'a Value> {
        let first = |value: &'a Value| names.iter().find_map(|name| value.get(name));
        first(self.value).or_else(|| first(self.defaults)).filter(|value| !value.is_null())
    }

    /// A part of the configuration.
    pub(super) fn part(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| value.is_object())
    }

    pub(super) fn text(&self, names: &[&str]) -> Option<&'a str> {
        self.find(names)?.as_str()
    }

    pub(super) fn flag(&self, names: &[&str]) -> Option<bool> {
        self.find(names)?.as_bool()
    }

    pub(super) fn float(&self, names: &[&str]) -> Option<f64> {
        self.find(names)?.as_f64().filter(|number| number.is_finite())
    }

    /// A width or a count; `None` for anything else, and for absurd values.
    pub(super) fn size(&self, names: &[&str]) -> Option<u64> {
        size(self.find(names)?)
    }

    /// A width or a count that the description cannot be made without.
    pub(super) fn needed(&self, names: &[&str]) -> Result<u64, ArchitectureError> {
        self.size(names).filter(|&size| size > 0).ok_or_else(|| ArchitectureError::Missing {
            key: names.first().copied().unwrap_or_default().to_owned(),
            family: self.text(&["model_type", "_class_name"]).unwrap_or("unknown").to_owned(),
        })
    }

    /// A number of layers.
    pub(super) fn layers(&self, names: &[&str]) -> Result<u64, ArchitectureError> {
        let layers = self.needed(names)?;
        if layers > MOST_LAYERS {
            return Err(ArchitectureError::TooMany { what: "layers", count: layers });
        }
        Ok(layers)
    }

    /// A list of widths or counts, or the one number that stands for all.
    pub(super) fn sizes(&self, names: &[&str]) -> Option<Vec<u64>> {
        match self.find(names)? {
            Value::Array(values) if values.len() <= 64 => values.iter().map(size).collect(),
            value => Some(vec![size(value)?]),
        }
    }

    /// A list of texts.
    pub(super) fn texts(&self, names: &[&str]) -> Option<Vec<&'a str>> {
        self.find(names)?.as_array()?.iter().take(MOST_LAYERS as usize).map(Value::as_str).collect()
    }
}

/// A number as a size. Some configurations write widths as floats.
fn size(value: &Value) -> Option<u64> {
    let size = value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && (0.0..=LARGEST as f64).contains(&float)).then_some(float as u64)
    })?;
    (size <= LARGEST).then_some(size)
}

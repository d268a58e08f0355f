//! Reads a JSON value of which only plain ones matter.

use std::fmt;

use crate::figure;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A number or a text. Writers disagree on types (an id is a number here and a text there), and a value of another type
/// in a field that does not matter is no reason to refuse a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Scalar {
    /// Null, a list or an object.
    #[default]
    Nothing,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// As an address or a size; signed writers wrapped addresses above 2^63.
    pub(crate) fn unsigned(&self) -> Option<u64> {
        match *self {
            Scalar::Int(value) => Some(value as u64),
            Scalar::Unsigned(value) => Some(value),
            Scalar::Float(value) => (value >= 0.0).then_some(value as u64),
            Scalar::Text(ref text) => text.parse().ok(),
            Scalar::Nothing | Scalar::Bool(_) => None,
        }
    }

    /// As a number of bytes; `None` where there is none.
    ///
    /// # Errors
    /// When it is negative, infinite, or larger than any memory.
    pub(crate) fn bytes(&self, field: &str) -> Result<Option<u64>, String> {
        match *self {
            Scalar::Int(value) => figure::whole(field, i128::from(value)).map(Some),
            Scalar::Unsigned(value) => figure::whole(field, i128::from(value)).map(Some),
            Scalar::Float(value) => figure::fraction(field, value).map(Some),
            _ => Ok(self.unsigned()),
        }
    }

    /// As a number of bytes that came, or that went where it is negative; `None` where there is none.
    ///
    /// # Errors
    /// When it is infinite, or larger than any memory.
    pub(crate) fn change(&self, field: &str) -> Result<Option<i64>, String> {
        match *self {
            Scalar::Unsigned(value) => figure::whole(field, i128::from(value)).map(|bytes| Some(bytes as i64)),
            Scalar::Float(value) => {
                figure::fraction(field, value.abs()).map(|bytes| Some((bytes as i64) * value.signum() as i64))
            }
            _ => Ok(self.signed()),
        }
    }

    /// As a signed number; a fraction is cut off.
    pub(crate) fn signed(&self) -> Option<i64> {
        match *self {
            Scalar::Int(value) => Some(value),
            Scalar::Unsigned(value) => Some(i64::try_from(value).unwrap_or(i64::MAX)),
            Scalar::Float(value) => Some(value as i64),
            Scalar::Text(ref text) => text.parse().ok(),
            Scalar::Nothing | Scalar::Bool(_) => None,
        }
    }

    /// As a number with a fraction.
    pub(crate) fn float(&self) -> Option<f64> {
        match *self {
            Scalar::Int(value) => Some(value as f64),
            Scalar::Unsigned(value) => Some(value as f64),
            Scalar::Float(value) => Some(value),
            Scalar::Text(ref text) => text.parse().ok(),
            Scalar::Nothing | Scalar::Bool(_) => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn truth(&self) -> Option<bool> {
        match *self {
            Scalar::Bool(value) => Some(value),
            Scalar::Int(value) => Some(value != 0),
            Scalar::Unsigned(value) => Some(value != 0),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Nothing => Ok(()),
            Scalar::Bool(value) => value.fmt(f),
            Scalar::Int(value) => value.fmt(f),
            Scalar::Unsigned(value) => value.fmt(f),
            Scalar::Float(value) => value.fmt(f),
            Scalar::Text(text) => text.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        Ok(i64::try_from(value).map_or(Scalar::Unsigned(value), Scalar::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Scalar, E> {
        Ok(Scalar::Text(value))
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Nothing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nothing)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nothing)
    }
}

//! Reads the values of a GGUF file's settings.

use crate::ModelError;
use crate::source::Front;

/// A text in a header may be this long, in bytes; chat templates are the longest.
const LONGEST_TEXT: u64 = 16 << 20;
/// Arrays of this many values are kept; of longer ones (a vocabulary, its scores) only the length.
const LONGEST_ARRAY: u64 = 4096;
/// Arrays within arrays are in no known file; a few levels do no harm.
const DEEPEST: u32 = 4;

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A float of either width.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text; what is not UTF-8 in it is replaced.
    Text(String),
    /// Several values. Those of an array of more than 4,096 are not kept.
    Array {
        /// How many there are.
        length: u64,
        /// The values, where they were kept.
        values: Vec<Value>,
    },
}

impl Value {
    /// The value as a size or a count.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The value as a number.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::Unsigned(value) => Some(value as f64),
            Self::Signed(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The value as a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as JSON; of an array that was not kept, its length.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Unsigned(value) => (*value).into(),
            Self::Signed(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::Bool(value) => (*value).into(),
            Self::Text(value) => value.clone().into(),
            Self::Array { length, values } if values.len() as u64 == *length => {
                values.iter().map(Self::to_json).collect()
            }
            Self::Array { length, .. } => serde_json::json!({ "length": length }),
        }
    }

    /// How many values an array has.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match *self {
            Self::Array { length, .. } => Some(length),
            _ => None,
        }
    }
}

/// Reads the parts of a header.
pub(super) struct Reader<'a> {
    pub(super) front: Front<'a>,
    pub(super) big_endian: bool,
    /// Whether counts and lengths have eight bytes; four in version 1.
    pub(super) wide: bool,
}

macro_rules! number {
    ($name:ident, $type:ty) => {
        pub(super) fn $name(&mut self) -> Result<$type, ModelError> {
            let bytes = self.front.array()?;
            Ok(if self.big_endian { <$type>::from_be_bytes(bytes) } else { <$type>::from_le_bytes(bytes) })
        }
    };
}

impl Reader<'_> {
    number!(u16, u16);
    number!(u32, u32);
    number!(u64, u64);
    number!(i16, i16);
    number!(i32, i32);
    number!(i64, i64);
    number!(f32, f32);
    number!(f64, f64);

    /// A size in the width of the file's version.
    pub(super) fn size(&mut self) -> Result<u64, ModelError> {
        if self.wide { self.u64() } else { Ok(self.u32()?.into()) }
    }

    /// A count that must not exceed `most`, nor the bytes that are left.
    pub(super) fn count(&mut self, most: u64, what: &str) -> Result<u64, ModelError> {
        let at = self.front.offset();
        let count = self.size()?;
        if count > most || count > self.front.remaining() {
            return Err(super::malformed(format!("{count} {what}"), at));
        }
        Ok(count)
    }

    pub(super) fn text(&mut self) -> Result<String, ModelError> {
        let length = self.count(LONGEST_TEXT, "bytes of text")?;
        Ok(String::from_utf8_lossy(self.front.take(length as usize)?).into_owned())
    }

    pub(super) fn value(&mut self) -> Result<Value, ModelError> {
        let kind = self.u32()?;
        self.value_of(kind, 0)
    }

    fn value_of(&mut self, kind: u32, depth: u32) -> Result<Value, ModelError> {
        let at = self.front.offset();
        Ok(match kind {
            0 => Value::Unsigned(self.front.array::<1>()?[0].into()),
            1 => Value::Signed(i8::from_le_bytes(self.front.array()?).into()),
            2 => Value::Unsigned(self.u16()?.into()),
            3 => Value::Signed(self.i16()?.into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Signed(self.i32()?.into()),
            6 => Value::Float(self.f32()?.into()),
            7 => Value::Bool(self.front.array::<1>()?[0] != 0),
            8 => Value::Text(self.text()?),
            9 if depth < DEEPEST => self.array(depth)?,
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(self.i64()?),
            12 => Value::Float(self.f64()?),
            _ => return Err(super::malformed(format!("a value of type {kind}"), at)),
        })
    }

    fn array(&mut self, depth: u32) -> Result<Value, ModelError> {
        let kind = self.u32()?;
        let length = self.count(u64::MAX, "values in an array")?;
        let keep = length <= LONGEST_ARRAY;
        let mut values = Vec::new();
        if !keep && let Some(width) = width(kind) {
            self.front.skip(length.saturating_mul(width))?;
        } else if !keep && kind == 8 {
            for _ in 0..length {
                let bytes = self.count(LONGEST_TEXT, "bytes of text")?;
                self.front.skip(bytes)?;
            }
        } else {
            for _ in 0..length {
                let value = self.value_of(kind, depth + 1)?;
                if keep {
                    values.push(value);
                }
            }
        }
        Ok(Value::Array { length, values })
    }
}

/// Bytes of a value of a type of fixed width.
fn width(kind: u32) -> Option<u64> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

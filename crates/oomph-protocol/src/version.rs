//! The name and version that each document carries, and who can read which.

use std::fmt;

/// A document's name and version, written in its field `schema` as `NAME/VERSION`.
///
/// The rule: a reader reads documents of its own version and of no other. Within a version a field may be added if it has
/// a default that means what its absence meant before; a field that is removed, renamed or given another meaning makes
/// another version. So a reader passes over fields that it does not know, and never over a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schema {
    /// What the document is, such as `oomph.hook-report`.
    pub name: &'static str,
    /// Its version.
    pub version: u32,
    /// The text of the field `schema`.
    pub text: &'static str,
}

impl Schema {
    /// Whether a document that says `found` of itself can be read.
    ///
    /// # Errors
    /// When it is another document, of another version, or does not say.
    pub fn check(&self, found: Option<&str>) -> Result<(), Mismatch> {
        if found == Some(self.text) {
            return Ok(());
        }
        Err(Mismatch { expected: *self, found: found.map(str::to_owned) })
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text)
    }
}

/// A document that this oomph does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What was expected.
    pub expected: Schema,
    /// What the document says that it is; `None` where it does not say.
    pub found: Option<String>,
}

/// The longest name of a document that is repeated in an error.
const LONGEST_NAME: usize = 60;

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.expected;
        let Some(found) = &self.found else {
            return write!(f, "the document has no schema, expected {expected:?}", expected = expected.text);
        };
        let version = found
            .strip_prefix(expected.name)
            .and_then(|rest| rest.strip_prefix('/'))
            .and_then(|version| version.parse::<u32>().ok());
        // The name may be anybody's, so its length is bounded and `{:?}` escapes it.
        let short: String = found.chars().take(LONGEST_NAME).collect();
        let age = match version {
            Some(version) if version > expected.version => "a newer oomph wrote it",
            Some(_) => "an older oomph wrote it",
            None => "it is another document",
        };
        write!(f, "the document is {short:?}, expected {:?}: {age}", expected.text)
    }
}

impl std::error::Error for Mismatch {}

/// Declares documents: a constant of type [`Schema`] for each, and a list of all.
macro_rules! schemas {
    ($($(#[$about:meta])* $constant:ident = $name:literal / $version:literal;)+) => {
        $($(#[$about])* pub const $constant: Schema =
            Schema { name: $name, version: $version, text: concat!($name, "/", $version) };)+

        /// The documents that processes of a run exchange, with the names of their constants.
        pub const ALL: &[(&str, Schema)] = &[$((stringify!($constant), $constant),)+];
    };
}

schemas! {
    /// `hook.json`: the launcher's configuration of the hook.
    HOOK_CONFIG = "oomph.hook-config" / 1;
    /// `hook/PID.json`: what the hook saw of one process.
    HOOK_REPORT = "oomph.hook-report" / 1;
    /// `hook/PID.names.json`: what the hook knows of the blocks of a recording.
    NAMES = "oomph.names" / 1;
    /// `hook/PID.compared.json`: what a training computed.
    COMPARED = "oomph.compared" / 1;
    /// `device/PID.json`: the memory calls of one process.
    DEVICE_ACTIVITY = "oomph.device-activity" / 1;
    /// `device/PID.refused.json`: the last allocation that a card refused to a process.
    DEVICE_REFUSAL = "oomph.device-refusal" / 1;
    /// The lines of a guarded run's `journal.jsonl`.
    JOURNAL = "oomph.journal" / 1;
    /// `device-log/PID.jsonl`: what a process took of its cards and gave back. Its first line carries the schema.
    DEVICE_LOG = "oomph.device-log" / 1;
}

/// Declares the type of a document's field `schema`: it is written as `$text`, and reading anything else is an error.
///
/// The crate that uses it needs no `serde` of this crate's version: the macro uses the one of this crate.
#[cfg(feature = "documents")]
#[macro_export]
macro_rules! schema {
    ($name:ident, $text:expr) => {
        #[doc = concat!("The document's name and version. It is written as `", stringify!($text), "`, and reading anything else is an error.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// The name and version as they are written.
            pub const NAME: &'static str = $text;
        }

        impl $crate::__serde::Serialize for $name {
            fn serialize<S: $crate::__serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(Self::NAME)
            }
        }

        impl<'de> $crate::__serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::__serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as $crate::__serde::Deserialize>::deserialize(deserializer)?;
                if name == Self::NAME {
                    return Ok(Self);
                }
                Err($crate::__serde::de::Error::custom(format_args!("the document is {name:?}, not {:?}", Self::NAME)))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "const": Self::NAME })
            }
        }
    };
}

/// A document of one process for another.
#[cfg(feature = "documents")]
pub trait Document: serde::Serialize + serde::de::DeserializeOwned {
    /// What it says that it is.
    const SCHEMA: Schema;
}

/// Why a document cannot be read.
#[cfg(feature = "documents")]
#[derive(Debug)]
pub enum ReadError {
    /// It is not JSON of the declared shape.
    Json(serde_json::Error),
    /// It is of another version.
    Mismatch(Mismatch),
}

#[cfg(feature = "documents")]
impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(f),
            Self::Mismatch(mismatch) => mismatch.fmt(f),
        }
    }
}

#[cfg(feature = "documents")]
impl std::error::Error for ReadError {}

/// Reads a document. Its schema is looked at first, so that one of another version is an error of its own and not whatever
/// field happens to differ.
///
/// # Errors
/// When it is not JSON of the declared shape, or of another version.
#[cfg(feature = "documents")]
pub fn read<T: Document>(text: &[u8]) -> Result<T, ReadError> {
    #[derive(serde::Deserialize)]
    struct Envelope {
        #[serde(default)]
        schema: Option<String>,
    }
    let envelope: Envelope = serde_json::from_slice(text).map_err(ReadError::Json)?;
    T::SCHEMA.check(envelope.schema.as_deref()).map_err(ReadError::Mismatch)?;
    serde_json::from_slice(text).map_err(ReadError::Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_version_is_read_and_the_error_says_who_is_older() {
        assert_eq!(HOOK_REPORT.check(Some("oomph.hook-report/1")), Ok(()));
        let says = |found: Option<&str>| HOOK_REPORT.check(found).unwrap_err().to_string();
        assert_eq!(
            says(Some("oomph.hook-report/2")),
            r#"the document is "oomph.hook-report/2", expected "oomph.hook-report/1": a newer oomph wrote it"#
        );
        assert!(says(Some("oomph.hook-report/0")).ends_with("an older oomph wrote it"));
        assert!(says(Some("oomph.hook-reports/1\n")).ends_with("it is another document"));
        assert!(!says(Some("a\nb")).contains('\n'), "an error is one line");
        assert!(says(None).contains("has no schema"));
    }

    #[test]
    fn no_two_documents_have_one_name() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|(_, schema)| schema.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}

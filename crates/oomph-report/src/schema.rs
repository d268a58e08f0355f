//! The name and version that every document carries.

/// Declares the type of a document's `schema` field: it is written as this name, and reading anything else is an error.
macro_rules! schema {
    ($name:ident, $text:literal) => {
        #[doc = concat!("The document's name and version. It is written as `\"", $text, "\"`, and reading anything else is an error.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// The name and version as they are written.
            pub const NAME: &str = $text;
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(Self::NAME)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                if name == Self::NAME {
                    return Ok(Self);
                }
                Err(serde::de::Error::custom(format_args!("the document is {name:?}, not {:?}", Self::NAME)))
            }
        }
    };
}

pub(crate) use schema;

//! The macro for a closed set of words: an enum, the text of each word, and how they are read and written.

/// Declares an enum of words. `else Variant` is what a word reads as that is not among them; without it such a word is an
/// error.
macro_rules! words {
    (
        $(#[$about:meta])*
        $name:ident $(else $fallback:ident)? {
            $($(#[$of_word:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$of_word])* $variant,)+
        }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word in documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// What a word of a document means; `None` for one that is not among them.
            #[must_use]
            pub fn named(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.name() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$fallback
            }
        })?

        #[cfg(feature = "documents")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        #[cfg(feature = "documents")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                if let Some(known) = Self::named(&word) {
                    return Ok(known);
                }
                $(return Ok(Self::$fallback);)?
                #[allow(unreachable_code, reason = "where a word that is not known has a meaning")]
                Err(serde::de::Error::unknown_variant(&word, &[$($text,)+]))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($text,)+] })
            }
        }
    };
}

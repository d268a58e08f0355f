//! The usual questions. Each is one file of plain SQL that other engines run unchanged; its first line says what it
//! asks.

/// A question that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// Its name, which is also a view's.
    pub name: &'static str,
    /// The file.
    pub file: &'static str,
}

impl Usual {
    /// What it asks.
    #[must_use]
    pub fn asks(&self) -> &'static str {
        self.file.lines().next().unwrap_or_default().trim_start_matches("-- ")
    }
}

macro_rules! usual {
    ($($name:literal),* $(,)?) => {
        /// The usual questions, in the order in which a page shows them.
        pub const USUAL: &[Usual] =
            &[$(Usual { name: $name, file: include_str!(concat!("../../queries/", $name, ".sql")) }),*];
    };
}

usual! {
    "days",
    "top_causes",
    "top_lines",
    "cards",
    "remedies",
    "cache_share",
    "smaller_cards",
    "grown_models",
    "leaks",
    "restarts",
}

/// The question of a name; dashes are as good as underscores.
#[must_use]
pub fn find(name: &str) -> Option<&'static Usual> {
    let name = name.replace('-', "_");
    USUAL.iter().find(|usual| usual.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::TABLES;

    #[test]
    fn every_question_says_what_it_asks() {
        for usual in USUAL {
            assert!(usual.file.starts_with("-- ") && usual.asks().ends_with('?'), "{}", usual.name);
            // A view of a table's name would never be seen.
            assert!(TABLES.iter().all(|table| table.name != usual.name), "{}", usual.name);
        }
        assert_eq!(find("top-lines").map(|usual| usual.name), Some("top_lines"));
    }
}

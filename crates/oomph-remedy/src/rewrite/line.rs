//! A command line with the configuration files that it names.

use std::collections::BTreeMap;

use super::document::{Document, Format};

/// The words of a command line, as a shell has split them, and what is in the configuration files among them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// The words.
    pub words: Vec<String>,
    /// The files by the words that name them, as the user wrote them or as remedies have changed them.
    files: BTreeMap<String, Document>,
    /// The code of the script that it starts, where that was read.
    code: Option<String>,
}

impl Line {
    /// A line whose files nobody has read.
    pub fn new(words: Vec<String>) -> Self {
        Self { words, files: BTreeMap::new(), code: None }
    }

    /// A line with those of its words that name a configuration file. `read` gives the text of a file, and nothing for
    /// what is not a file.
    pub fn reading(words: Vec<String>, read: impl Fn(&str) -> Option<String>) -> Self {
        let files = words
            .iter()
            .map(|word| file_name(word))
            .filter_map(|name| Some((name.to_owned(), Document::read(Format::of(name)?, &read(name)?)?)))
            .collect();
        Self { words, files, code: None }
    }

    /// The same line with the code of the script that it starts: whose script it is then follows from its name only where
    /// it imports that library.
    #[must_use]
    pub fn with_code(self, code: Option<String>) -> Self {
        Self { code, ..self }
    }

    /// Whether the script imports one of these modules, or may do so because nobody read it.
    pub(super) fn may_import(&self, modules: &[&str]) -> bool {
        let Some(code) = &self.code else { return true };
        let is_of = |word: &str| {
            modules
                .iter()
                .any(|module| word.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
        };
        code.lines().any(|line| {
            let part = |letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '.';
            let mut words = line.split(part).filter(|word| !word.is_empty());
            matches!(words.next(), Some("import" | "from")) && words.any(is_of)
        })
    }

    /// Whether this word names a configuration file that was read.
    pub fn is_file(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Whether a word names a configuration file of this format that was read.
    pub fn has_file_of(&self, format: Format) -> bool {
        self.files.keys().any(|name| Format::of(name) == Some(format))
    }

    /// Names and texts of the files that say something else in another line.
    pub fn files_changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let changed = self.files.iter().filter(|(name, document)| before.files.get(*name) != Some(document));
        changed.map(|(name, document)| (name.as_str(), document.text()))
    }

    pub(super) fn document(&self, name: &str) -> Option<&Document> {
        self.files.get(name)
    }

    pub(super) fn set(&mut self, name: &str, document: Document) {
        self.files.insert(name.to_owned(), document);
    }

    /// The same files with other words.
    pub(super) fn with_words(&self, words: Vec<String>) -> Self {
        Self { words, ..self.clone() }
    }
}

/// A word with another name for the file that it names, as `--config=run.yaml` does.
pub fn renamed(word: &str, names: &BTreeMap<String, String>) -> String {
    let name = file_name(word);
    match names.get(name) {
        Some(new) => format!("{}{new}", &word[..word.len() - name.len()]),
        None => word.to_owned(),
    }
}

/// The part of a word that may name a file: all of it, or what an option is set to.
fn file_name(word: &str) -> &str {
    match word.split_once('=') {
        Some((_, value)) if Format::of(value).is_some() => value,
        _ => word,
    }
}

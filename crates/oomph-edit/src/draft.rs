//! Collects the edits of a remedy while it is placed in a program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::documents;
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::facts::{Amount, Facts};
use crate::opt::Opt;
use crate::program::Program;

/// By what means a remedy was placed, the least intrusive first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// An option of the program's own.
    Option,
    /// An argument of a library's class or function.
    Argument,
    /// Other code.
    Code,
}

/// A program with a remedy placed in it.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The program with it.
    pub program: Program,
    /// By what means.
    pub way: Way,
    /// What the user should know of it, one sentence each.
    pub notes: Vec<String>,
    /// The effective batch before and after, where it shrinks.
    pub smaller_batch: Option<(u64, u64)>,
}

/// A program while a remedy is being placed in it.
pub(crate) struct Draft<'a> {
    pub program: &'a Program,
    pub facts: &'a Facts,
    pub amount: Amount,
    edits: BTreeMap<PathBuf, Vec<Edit>>,
    arguments: Vec<String>,
    way: Way,
    pub notes: Vec<String>,
    pub smaller_batch: Option<(u64, u64)>,
}

impl<'a> Draft<'a> {
    /// A program in which nothing is placed yet.
    pub fn of(program: &'a Program, facts: &'a Facts, amount: Amount) -> Self {
        Self {
            program,
            facts,
            amount,
            edits: BTreeMap::new(),
            arguments: program.arguments().to_vec(),
            way: Way::Option,
            notes: Vec::new(),
            smaller_batch: None,
        }
    }

    /// Adds an edit; one that is there already is not made twice.
    pub fn edit(&mut self, file: &Path, way: Way, edit: Edit) {
        self.way = self.way.max(way);
        let edits = self.edits.entry(file.to_owned()).or_default();
        if !edits.contains(&edit) || edit.range.is_empty() && !edit.text.contains("import ") {
            edits.push(edit);
        }
    }

    /// Replaces a place that no edit has replaced so far.
    pub fn edit_once(&mut self, file: &Path, way: Way, edit: Edit) {
        let known = self.edits.get(file).into_iter().flatten();
        if !known.into_iter().any(|other| other.range == edit.range) {
            self.edit(file, way, edit);
        }
    }

    /// Adds several edits of one file.
    pub fn edits(&mut self, file: &Path, way: Way, edits: impl IntoIterator<Item = Edit>) {
        for edit in edits {
            self.edit(file, way, edit);
        }
    }

    /// Gives an option a value, on the command line or in its file.
    pub fn set_option(&mut self, option: &Opt, value: &str) {
        match &option.written {
            Some(place) => {
                let before = self.program.text(&place.file).and_then(|text| text.get(place.range.clone()));
                let text = documents::spelled(&place.file, value, before.unwrap_or_default());
                self.edit(&place.file, Way::Option, Edit { range: place.range.clone(), text });
            }
            None => option.set(&mut self.arguments, value),
        }
    }

    /// Gives a word of the command line another value, where it is there.
    pub fn set_word(&mut self, place: usize, value: &str) {
        if let Some(word) = self.arguments.get_mut(place) {
            value.clone_into(word);
        }
    }

    /// Writes other words in all edits made so far, and says whether any had them.
    pub fn replace_in_edits(&mut self, words: &str, others: &str) -> bool {
        let mut any = false;
        for edit in self.edits.values_mut().flatten().filter(|edit| edit.text.contains(words)) {
            edit.text = edit.text.replace(words, others);
            any = true;
        }
        any
    }

    /// Whether nothing was changed so far.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.arguments == self.program.arguments()
    }

    /// The program with all that was placed in it.
    ///
    /// # Errors
    /// Where nothing was placed, or the edits cannot be made.
    pub fn finish(self) -> Result<Placed, CannotPlace> {
        if self.is_empty() {
            return Err(CannotPlace("there is no place for it in the code".into()));
        }
        let program = self.program.edited(&self.edits, self.arguments)?;
        if program.arguments() == self.program.arguments() && program.changed_since(self.program).is_empty() {
            return Err(CannotPlace("the program does so already".into()));
        }
        Ok(Placed { program, way: self.way, notes: self.notes, smaller_batch: self.smaller_batch })
    }
}

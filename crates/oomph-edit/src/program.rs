//! A user's program: its script, the modules of its folder that it imports, and its arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tree_sitter::Node;

use crate::calls::Call;
use crate::diff;
use crate::edit::{Edit, edited};
use crate::facts::{Amount, Facts};
use crate::hydra;
use crate::notebook::Notebook;
use crate::options::{self, Opt};
use crate::recipes;
use crate::settings::{self, Document};
use crate::source::Source;

/// Files that are read at most.
const MOST_FILES: usize = 300;

/// A program, unmodified or with remedies placed in it.
#[derive(Clone, Debug)]
pub struct Program {
    folder: PathBuf,
    script: PathBuf,
    files: BTreeMap<PathBuf, Arc<Source>>,
    notebooks: BTreeMap<PathBuf, Arc<Notebook>>,
    /// The options that are in the configuration files of Hydra.
    configured: Vec<Opt>,
    /// The configuration files that it reads itself.
    documents: BTreeMap<PathBuf, Arc<Document>>,
    arguments: Vec<String>,
}

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

/// Why a remedy cannot be placed with certainty, in a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotPlace(pub String);

impl fmt::Display for CannotPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for CannotPlace {}

/// A node with the file that it is in.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub file: &'a Path,
    pub source: &'a Source,
    pub node: Node<'a>,
}

impl<'a> At<'a> {
    /// Another node of the same file.
    pub fn with(self, node: Node<'a>) -> Self {
        Self { node, ..self }
    }

    /// Its text.
    pub fn text(self) -> &'a str {
        self.source.of(self.node)
    }
}

impl Program {
    /// Reads a script, or a notebook, and the files of its folder that it imports; `None` where it is not valid Python.
    ///
    /// `script` and `folder`, the first in which Python looks for modules, are absolute paths.
    pub fn read(script: &Path, folder: &Path, arguments: Vec<String>) -> Option<Self> {
        Self::reading(script, folder, arguments, |path| std::fs::read_to_string(path).ok())
    }

    /// The same with another way to read a file.
    pub fn reading(
        script: &Path,
        folder: &Path,
        arguments: Vec<String>,
        read: impl Fn(&Path) -> Option<String>,
    ) -> Option<Self> {
        let folder = folder.to_owned();
        let (mut files, mut notebooks) = (BTreeMap::new(), BTreeMap::new());
        let mut configured = Vec::new();
        let mut seen = BTreeSet::from([script.to_owned()]);
        let mut waiting = vec![script.to_owned()];
        while let Some(path) = waiting.pop() {
            let Some(mut text) = read(&path) else { continue };
            if is_notebook(&path) {
                let Some(notebook) = Notebook::parse(&text) else { continue };
                text = notebook.python();
                notebooks.insert(path.clone(), Arc::new(notebook));
            }
            let Some(source) = Source::parse(&text) else { continue };
            for imported in imports(&source, &path, &folder) {
                if seen.len() < MOST_FILES && seen.insert(imported.clone()) {
                    waiting.push(imported);
                }
            }
            configured.extend(hydra::options(&path, &source, &read));
            files.insert(path, Arc::new(source));
        }
        files.contains_key(script).then(|| Self {
            folder,
            script: script.to_owned(),
            files,
            notebooks,
            configured,
            documents: BTreeMap::new(),
            arguments,
        })
    }

    /// The same program with the settings of the configuration files that it names, relative to the directory in which it
    /// runs or to its folder.
    #[must_use]
    pub fn with_settings(self, directory: &Path) -> Self {
        self.reading_settings(directory, |path| std::fs::read_to_string(path).ok())
    }

    /// The same with another way to read a file.
    #[must_use]
    pub fn reading_settings(mut self, directory: &Path, read: impl Fn(&Path) -> Option<String>) -> Self {
        // What Hydra reads is set on the line.
        if self.configured.is_empty() {
            let found = settings::documents(&self, directory, &self.folder, &read);
            self.documents = found.into_iter().map(|(path, document)| (path, Arc::new(document))).collect();
        }
        self
    }

    /// The words after the script.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The same program with other words after the script.
    #[must_use]
    pub fn with_arguments(&self, arguments: Vec<String>) -> Self {
        Self { arguments, ..self.clone() }
    }

    /// The script.
    pub fn script(&self) -> &Path {
        &self.script
    }

    /// The text of one of its files.
    pub fn text(&self, path: &Path) -> Option<&str> {
        match self.notebooks.get(path) {
            Some(notebook) => Some(notebook.text()),
            None => {
                let code = self.files.get(path).map(|source| source.text());
                code.or_else(|| self.documents.get(path).map(|document| document.text.as_str()))
            }
        }
    }

    /// The files that say something else than in another state of the program, with their texts.
    pub fn changed_since(&self, before: &Self) -> BTreeMap<PathBuf, String> {
        let changed = self
            .files
            .iter()
            .filter(|(path, source)| before.files.get(*path).is_none_or(|old| old.text() != source.text()));
        let written = |path: &PathBuf, source: &Source| match self.notebooks.get(path) {
            Some(notebook) => notebook.with(source.text()),
            None => Some(source.text().to_owned()),
        };
        let code = changed.filter_map(|(path, source)| Some((path.clone(), written(path, source)?)));
        let settings = self
            .documents
            .iter()
            .filter(|(path, document)| before.documents.get(*path).is_none_or(|old| old.text != document.text))
            .map(|(path, document)| (path.clone(), document.text.clone()));
        code.chain(settings).collect()
    }

    /// The difference to another state of the program as one patch, with paths relative to `base` where they are below
    /// it, else to the script's folder.
    pub fn patch_since(&self, before: &Self, base: &Path) -> String {
        let base = self.patch_folder(before, base);
        let changed = self.changed_since(before);
        let texts = changed.iter().map(|(path, text)| {
            let name = path.strip_prefix(base).unwrap_or(path).to_string_lossy().replace('\\', "/");
            let old = before.text(path).unwrap_or_default();
            diff::patch(&name, old, text)
        });
        texts.collect()
    }

    /// The folder in which [`Self::patch_since`] applies: `base` where all changed files are below it, else the
    /// script's.
    pub fn patch_folder<'p>(&'p self, before: &Self, base: &'p Path) -> &'p Path {
        let below = self.changed_since(before).keys().all(|path| path.starts_with(base));
        if below { base } else { &self.folder }
    }

    /// The program's own options.
    pub fn options(&self) -> Vec<Opt> {
        options::all(self)
    }

    /// Whether the program takes an option of this spelling, such as `--batch_size`; `None` where its own files do not say.
    pub fn takes(&self, flag: &str) -> Option<bool> {
        crate::options::takes(self, flag)
    }

    pub(crate) fn configured(&self) -> &[Opt] {
        &self.configured
    }

    /// The settings of the configuration files that it reads itself.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &Opt> {
        self.documents.values().flat_map(|document| &document.settings)
    }

    /// Whether a loop carries the graphs of all its steps along in the state of a recurrent network.
    pub fn retains_a_state(&self) -> bool {
        recipes::retains_a_state(self)
    }

    /// The library by which the program serves a language model (`vllm`, `llama_cpp`), and the plain values of the
    /// arguments of its only engine, by their names; the model is `model` where it has none.
    pub fn served(&self) -> Option<(&'static str, BTreeMap<String, String>)> {
        recipes::served(self)
    }

    /// Places a remedy.
    ///
    /// # Errors
    /// Where its place is not certain.
    pub fn apply(&self, remedy: &str, amount: Amount, facts: &Facts) -> Result<Placed, CannotPlace> {
        let mut draft = Draft::of(self, facts, amount);
        recipes::place(remedy, &mut draft)?;
        draft.finish()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &Source)> {
        self.files.iter().map(|(path, source)| (path.as_path(), &**source))
    }

    pub(crate) fn file(&self, path: &Path) -> Option<(&Path, &Source)> {
        self.files.get_key_value(path).map(|(path, source)| (path.as_path(), &**source))
    }

    /// Every node of a kind, the script's first.
    pub(crate) fn all(&self, kind: &str) -> Vec<At<'_>> {
        let mut files: Vec<_> = self.files().collect();
        files.sort_by_key(|(path, _)| *path != self.script);
        let nodes = files
            .into_iter()
            .flat_map(|(file, source)| source.all(kind).into_iter().map(move |node| At { file, source, node }));
        nodes.collect()
    }

    /// Every call.
    pub(crate) fn calls(&self) -> Vec<Call<'_>> {
        self.all("call").into_iter().filter_map(Call::of).collect()
    }

    /// The file that a module's name stands for, seen from another file.
    pub(crate) fn module(&self, from: &Path, name: &str) -> Option<(&Path, &Source)> {
        module_files(name, from, &self.folder).into_iter().find_map(|path| self.file(&path))
    }
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
    fn of(program: &'a Program, facts: &'a Facts, amount: Amount) -> Self {
        Self {
            program,
            facts,
            amount,
            edits: BTreeMap::new(),
            arguments: program.arguments.clone(),
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
                let text = settings::spelled(&place.file, value, before.unwrap_or_default());
                self.edit(&place.file, Way::Option, Edit { range: place.range.clone(), text });
            }
            None => option.set(&mut self.arguments, value),
        }
    }

    /// Whether nothing was changed so far.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.arguments == self.program.arguments
    }

    fn finish(self) -> Result<Placed, CannotPlace> {
        if self.is_empty() {
            return Err(CannotPlace("there is no place for it in the code".into()));
        }
        let mut program = self.program.clone();
        program.arguments = self.arguments;
        for (path, edits) in &self.edits {
            let broken = || CannotPlace("its edits would overlap".into());
            if let Some(document) = program.documents.get(path) {
                let text = edited(&document.text, edits).ok_or_else(broken)?;
                let document = Document::parse(path, text);
                let document = document.ok_or_else(|| CannotPlace("the edited file would not be valid".into()))?;
                program.documents.insert(path.clone(), Arc::new(document));
                continue;
            }
            let source = program.files.get(path).ok_or_else(broken)?;
            let text = edited(source.text(), edits).ok_or_else(broken)?;
            let source =
                Source::parse(&text).ok_or_else(|| CannotPlace("the edited file would not be valid".into()))?;
            let told_apart = program.notebooks.get(path).is_none_or(|notebook| notebook.with(&text).is_some());
            if !told_apart {
                return Err(CannotPlace("it would run across cells of the notebook".into()));
            }
            program.files.insert(path.clone(), Arc::new(source));
        }
        if program.arguments == self.program.arguments && program.changed_since(self.program).is_empty() {
            return Err(CannotPlace("the program does so already".into()));
        }
        Ok(Placed { program, way: self.way, notes: self.notes, smaller_batch: self.smaller_batch })
    }
}

/// Whether a path is that of a notebook.
fn is_notebook(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ipynb")
}

/// The files that a file imports, as far as they may be the program's own.
fn imports(source: &Source, path: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<String> = Vec::new();
    for node in source.all("import_statement") {
        let mut cursor = node.walk();
        names.extend(node.children_by_field_name("name", &mut cursor).map(|name| {
            let inner = name.child_by_field_name("name").unwrap_or(name);
            source.of(inner).to_owned()
        }));
    }
    for node in source.all("import_from_statement") {
        let Some(module) = node.child_by_field_name("module_name").map(|name| source.of(name).to_owned()) else {
            continue;
        };
        let mut cursor = node.walk();
        for name in node.children_by_field_name("name", &mut cursor) {
            let inner = name.child_by_field_name("name").unwrap_or(name);
            let dot = if module.ends_with('.') { "" } else { "." };
            names.push(format!("{module}{dot}{}", source.of(inner)));
        }
        names.push(module);
    }
    names.iter().flat_map(|name| module_files(name, path, folder)).collect()
}

/// The files that a module's name may stand for: `a.b` is `a/b.py` or `a/b/__init__.py`.
fn module_files(name: &str, from: &Path, folder: &Path) -> Vec<PathBuf> {
    let dots = name.len() - name.trim_start_matches('.').len();
    let parts: Vec<&str> = name.trim_start_matches('.').split('.').filter(|part| !part.is_empty()).collect();
    let mut base = folder.to_owned();
    if dots > 0 {
        let Some(start) = from.ancestors().nth(dots) else { return Vec::new() };
        base = start.to_owned();
    }
    let plain = |part: &&str| part.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    if !parts.iter().all(plain) {
        return Vec::new();
    }
    let path = parts.iter().fold(base, |path, part| path.join(part));
    vec![path.with_extension("py"), path.join("__init__.py")]
}

//! A user's program: its script, the modules of its folder that it imports, and its arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::calls::Call;
use crate::diff;
use crate::documents::Document;
use crate::edit::{Edit, edited};
use crate::error::CannotPlace;
use crate::hydra;
use crate::notebook::Notebook;
use crate::opt::Opt;
use crate::scopes::assigned_text;
use crate::source::{At, Source};

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

    /// The first folder in which Python looks for its modules.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same program with these configuration files that it reads itself.
    pub(crate) fn with_documents(self, documents: Vec<(PathBuf, Document)>) -> Self {
        let documents = documents.into_iter().map(|(path, document)| (path, Arc::new(document))).collect();
        Self { documents, ..self }
    }

    /// The options that are in the configuration files of Hydra.
    pub(crate) fn configured(&self) -> &[Opt] {
        &self.configured
    }

    /// The settings of the configuration files that it reads itself.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &Opt> {
        self.documents.values().flat_map(|document| &document.settings)
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

    /// What is assigned to an expression anywhere in it.
    pub(crate) fn assigned<'a>(&'a self, text: &str) -> Vec<At<'a>> {
        self.files().flat_map(|(file, source)| assigned_text(At { file, source, node: source.root() }, text)).collect()
    }

    /// The program with edits of its files and with other words after the script.
    ///
    /// # Errors
    /// Where the edits overlap, or a file would not be valid with them.
    pub(crate) fn edited(
        &self,
        edits: &BTreeMap<PathBuf, Vec<Edit>>,
        arguments: Vec<String>,
    ) -> Result<Self, CannotPlace> {
        let broken = || CannotPlace("its edits would overlap".into());
        let invalid = || CannotPlace("the edited file would not be valid".into());
        let mut program = self.with_arguments(arguments);
        for (path, edits) in edits {
            if let Some(document) = self.documents.get(path) {
                let text = edited(&document.text, edits).ok_or_else(broken)?;
                let document = Document::parse(path, text).ok_or_else(invalid)?;
                program.documents.insert(path.clone(), Arc::new(document));
                continue;
            }
            let source = self.files.get(path).ok_or_else(broken)?;
            let text = edited(source.text(), edits).ok_or_else(broken)?;
            let source = Source::parse(&text).ok_or_else(invalid)?;
            let told_apart = self.notebooks.get(path).is_none_or(|notebook| notebook.with(&text).is_some());
            if !told_apart {
                return Err(CannotPlace("it would run across cells of the notebook".into()));
            }
            program.files.insert(path.clone(), Arc::new(source));
        }
        Ok(program)
    }

    /// The file that a module's name stands for, seen from another file.
    pub(crate) fn module(&self, from: &Path, name: &str) -> Option<(&Path, &Source)> {
        module_files(name, from, &self.folder).into_iter().find_map(|path| self.file(&path))
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

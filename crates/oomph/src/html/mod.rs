//! `--html FILE` and `oomph view`: writes pages for the browser.

mod answers;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use oomph_explain::snapshot::{self, Explanation, Names, Options};
use oomph_trace::Trace;
use oomph_view::{Answer, Page, Recording};

use crate::cli::PageArgs;
use crate::output;

pub use answers::{WHOLE, diff, dry_run, explain, fix, plan, sweep, tune};

/// A recording that a page shows.
pub struct Shown {
    /// The file's name.
    pub name: String,
    /// What was read.
    pub trace: Trace,
    /// What a dry run named.
    pub names: Option<Names>,
    /// What it means.
    pub explanation: Explanation,
}

/// How a page is written.
pub struct Writing<'a> {
    /// Its title.
    pub title: String,
    /// Where it goes.
    pub path: &'a Path,
    /// Whether folders and lines of source are left out.
    pub private: bool,
    /// Whether the first two cards are shown side by side.
    pub compare: bool,
}

/// Writes an answer that has no recording as a page, where one is wanted.
///
/// # Errors
/// When the file cannot be written.
pub fn answered(page: &PageArgs, title: String, answer: impl FnOnce() -> Answer) -> Result<()> {
    let Some(path) = &page.html else { return Ok(()) };
    let writing = Writing { title, path, private: page.private, compare: false };
    write(&writing, Some(answer()), &[], &Options::default())
}

/// Finds out before a run whether the page can be written after it.
///
/// # Errors
/// When it cannot.
pub fn writable(page: &PageArgs) -> Result<()> {
    page.html.as_deref().map_or(Ok(()), output::writable)
}

/// Writes a page.
///
/// # Errors
/// When the file cannot be written.
pub fn write(writing: &Writing<'_>, answer: Option<Answer>, shown: &[Shown], options: &Options) -> Result<()> {
    let recordings = shown.iter().map(|shown| Recording {
        name: shown.name.clone(),
        trace: &shown.trace,
        explanation: &shown.explanation,
        history: snapshot::history(&shown.trace, options, shown.names.as_ref()),
    });
    let page = Page {
        title: writing.title.clone(),
        answer,
        recordings: recordings.collect(),
        private: writing.private,
        compare: writing.compare,
    };
    let context = || format!("cannot write {}", writing.path.display());
    let html = page.html().with_context(context)?;
    fs::write(writing.path, html).with_context(context)
}

/// A command as a title: its program and its script.
pub fn short(command: &[String]) -> String {
    let words = command.iter().take(3).map(|word| last_part(Path::new(word)));
    words.collect::<Vec<_>>().join(" ")
}

/// The last part of a path, for titles.
pub fn last_part(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

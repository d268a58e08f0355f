//! `acceptance/docs/lines.toml`: what a page's command lines need, and which of them cannot run as printed. The file says
//! what its fields are.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use oomph_pages::{CommandLine, Page};
use serde::Deserialize;

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What stands for a placeholder, on every page.
    pub values: BTreeMap<String, String>,
    /// Pages that need preparation.
    pub page: Vec<OfPage>,
    /// Lines that do not just run and end with status 0.
    pub line: Vec<OfLine>,
}

/// What a page needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfPage {
    path: String,
    /// Lines of a shell that are run first.
    #[serde(default)]
    pub before: Vec<String>,
    /// A line of a shell that runs during the others.
    pub meanwhile: Option<String>,
    /// What stands for a placeholder on this page.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// Whether it needs the machine to itself.
    #[serde(default)]
    pub alone: bool,
}

/// What is different about a line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfLine {
    text: String,
    /// The page that it is run on, where it is printed on several.
    page: Option<String>,
    /// The reason for what the other fields say.
    #[serde(default)]
    why: String,
    /// The exit status that is promised.
    #[serde(default)]
    pub status: i32,
    /// What follows it: it is the beginning of a line.
    #[serde(default)]
    pub then: String,
    /// What it reads.
    #[serde(default)]
    pub input: String,
    /// After so many seconds it gets Ctrl-C.
    pub interrupt: Option<u64>,
    /// Files that it leaves.
    #[serde(default)]
    pub makes: Vec<String>,
    /// What it prints.
    #[serde(default)]
    pub says: String,
    /// What is run in its place.
    pub instead: Option<String>,
    /// What happens on a machine without a GPU.
    pub without_gpu: Option<WithoutGpu>,
    /// Why it is not run at all.
    pub not_run: Option<String>,
}

/// A line that needs a real GPU, where there is none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithoutGpu {
    /// The exit status that is promised.
    pub status: i32,
    /// What it prints.
    pub says: String,
    /// The same on a virtual card.
    pub instead: String,
}

/// A page with what is run of it.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// The page's path from the repository's root.
    pub path: String,
    /// Its preparation.
    pub needs: OfPage,
    /// Its lines and what is different about each. A line that another page has too is run on one of them.
    pub lines: Vec<(CommandLine, OfLine)>,
}

impl Table {
    /// The table of the repository.
    pub fn read() -> Self {
        toml::from_str(include_str!("../../../docs/lines.toml")).expect("lines.toml is a table of lines")
    }

    /// The pages with the lines that are run on each.
    pub fn chapters(&self, pages: &[Page]) -> Vec<Chapter> {
        let mut seen = BTreeSet::new();
        let chapters = pages.iter().map(|page| {
            let needs = self.page.iter().find(|one| one.path == page.path).cloned().unwrap_or_default();
            let lines = page.lines.iter().filter(|line| !line.is_for_fleet()).filter_map(|line| {
                let of_line = self.line.iter().find(|one| one.text == line.text).cloned().unwrap_or_default();
                let is_here = of_line.page.as_ref().is_none_or(|path| *path == page.path);
                (is_here && seen.insert(line.installed())).then(|| (line.clone(), of_line))
            });
            Chapter { path: page.path.clone(), needs, lines: lines.collect() }
        });
        chapters.filter(|chapter| !chapter.lines.is_empty()).collect()
    }

    /// Fails where an entry is about nothing, or has no reason.
    pub fn is_in_use(&self, chapters: &[Chapter]) -> Result<()> {
        let mut problems = Vec::new();
        let of_page = |path: &str| chapters.iter().find(|chapter| chapter.path == path);
        for page in self.page.iter().filter(|page| of_page(&page.path).is_none()) {
            problems.push(format!("{} has no line to run", page.path));
        }
        let lines: Vec<&str> =
            chapters.iter().flat_map(|chapter| &chapter.lines).map(|(line, _)| line.text.as_str()).collect();
        for line in &self.line {
            if !lines.contains(&line.text.as_str()) {
                problems.push(format!("no page prints `{}`", line.text));
            }
            let is_odd = line.status != 0
                || line.interrupt.is_some()
                || line.instead.is_some()
                || line.without_gpu.is_some()
                || !line.then.is_empty();
            if is_odd && line.why.is_empty() {
                problems.push(format!("`{}` has no reason", line.text));
            }
        }
        for value in self.values.keys().filter(|value| !lines.iter().any(|line| line.contains(*value))) {
            problems.push(format!("no line has {value}"));
        }
        for page in &self.page {
            let Some(chapter) = of_page(&page.path) else { continue };
            let unused = |value: &&String| !chapter.lines.iter().any(|(line, _)| line.text.contains(*value));
            problems
                .extend(page.values.keys().filter(unused).map(|value| format!("no line of {} has {value}", page.path)));
        }
        ensure!(problems.is_empty(), "acceptance/docs/lines.toml:\n{}", problems.join("\n"));
        Ok(())
    }
}

/// A line with values in place of its placeholders: those of the page first, and longer ones before shorter ones.
pub fn filled(line: &str, page: &BTreeMap<String, String>, all: &BTreeMap<String, String>) -> String {
    let mut line = line.to_owned();
    for values in [page, all] {
        let mut values: Vec<_> = values.iter().collect();
        values.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, value) in values {
            line = replaced(&line, name, value);
        }
    }
    line
}

/// Replaces a word wherever no letter, digit or underscore is next to it.
fn replaced(line: &str, name: &str, value: &str) -> String {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut done, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let is_word = !before.ends_with(is_part) && !after.starts_with(is_part);
        done.push_str(before);
        done.push_str(if is_word { value } else { name });
        rest = after;
    }
    done + rest
}

//! Finds the command lines of `oomph` in Markdown pages.
//!
//! Two tests use it: the one of `oomph` parses each line (`drift_tests.rs`), and those of `acceptance` and `oomph-fleet` run them.
//!
//! A command line is in a block of code or in backquotes. What a block with a language other than a shell's holds is not for a
//! shell, and a block marked as `text` holds output.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The languages of blocks that a shell reads; a block without one is such a block too.
const SHELLS: [&str; 5] = ["", "bash", "console", "sh", "shell"];

/// What builds oomph from the repository and runs it.
const BY_CARGO: &str = "cargo run --release -- ";

/// The program's name, and the space that follows it where it is called.
const NAME: &str = "oomph ";

/// The commands of `oomph-fleet`.
const FLEET: [&str; 2] = ["collect", "query"];

/// A page with its command lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it is, from the repository's root.
    pub path: String,
    /// Its command lines, in their order.
    pub lines: Vec<CommandLine>,
}

/// Where on a page a command line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a block of code: something to type.
    Block,
    /// In backquotes: something to type, or the name of a command or an option.
    Backquotes,
}

/// A command line, as printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The number of its line on the page, or of the paragraph that it is in.
    pub number: usize,
    /// What is printed, on one line and without a comment at its end.
    pub text: String,
    /// Where it is.
    pub place: Place,
}

impl CommandLine {
    /// The part of it that calls oomph: from its name to the end of the line, or of the substitution that it is in.
    pub fn call(&self) -> String {
        call(&self.text).unwrap_or_default()
    }

    /// Whether `oomph` hands it over to `oomph-fleet`, a program and workspace of its own.
    pub fn is_for_fleet(&self) -> bool {
        let call = self.call();
        let mut words = call.split_whitespace().skip(1);
        words.next().is_some_and(|command| FLEET.contains(&command))
    }

    /// The same line where oomph is installed: README.md builds it first.
    pub fn installed(&self) -> String {
        match self.text.strip_prefix(BY_CARGO) {
            Some(words) => format!("{NAME}{words}"),
            None => self.text.clone(),
        }
    }
}

/// README.md and all pages of `docs`, README.md first and the others by their paths.
///
/// # Errors
/// When one cannot be read.
pub fn pages(root: &Path) -> io::Result<Vec<Page>> {
    let mut paths = Vec::new();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.insert(0, root.join("README.md"));
    paths.iter().map(|path| page(root, path)).collect()
}

fn page(root: &Path, path: &Path) -> io::Result<Page> {
    let text = fs::read_to_string(path)?;
    let parts: PathBuf = path.strip_prefix(root).unwrap_or(path).into();
    let parts: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    Ok(Page { path: parts.join("/"), lines: command_lines(&text) })
}

/// The command lines of a page's text.
pub fn command_lines(text: &str) -> Vec<CommandLine> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        reader.read(index + 1, line);
    }
    reader.end_of_paragraph();
    reader.found.retain(|line| call(&line.text).is_some());
    reader.found
}

/// The calls of oomph in backquotes. A paragraph is a text of its own: a quote that is never closed ends there. The fences of
/// blocks, as transcripts have them, are no quotes.
pub fn quoted_calls(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("```")).collect();
    lines.join("\n").split("\n\n").flat_map(pieces).filter_map(|piece| call(&piece)).collect()
}

/// What is in backquotes, each on one line.
fn pieces(paragraph: &str) -> Vec<String> {
    paragraph.split('`').skip(1).step_by(2).map(|piece| piece.replace('\n', " ")).collect()
}

/// The part of a line that calls oomph, if one does.
fn call(line: &str) -> Option<String> {
    if let Some(words) = line.strip_prefix(BY_CARGO) {
        return Some(format!("{NAME}{words}"));
    }
    let (at, _) = line.match_indices(NAME).find(|(at, _)| begins_a_command(&line[..*at]))?;
    let call = &line[at..];
    let end = if line[..at].ends_with("$(") { call.find(')') } else { None };
    Some(call[..end.unwrap_or(call.len())].to_owned())
}

/// A line without the comment at its end.
fn without_comment(line: &str) -> &str {
    let is_quoted = |at: usize| line[..at].matches(['\'', '"']).count() % 2 == 1;
    let comment = line.match_indices(" #").map(|(at, _)| at).find(|at| !is_quoted(*at));
    line[..comment.unwrap_or(line.len())].trim_end()
}

/// Whether a shell takes the word behind these for a program.
fn begins_a_command(before: &str) -> bool {
    let is_assignment = |word: &str| word.split_once('=').is_some_and(|(name, _)| !name.contains(['$', '(', '-']));
    before.ends_with("$(")
        || ["| ", "&& ", "|| ", "; ", "sudo "].iter().any(|end| before.ends_with(end))
        || before.split_whitespace().all(is_assignment)
}

/// Reads a page line by line.
#[derive(Debug, Default)]
struct Reader {
    found: Vec<CommandLine>,
    /// The language of the fenced block that is open.
    fence: Option<String>,
    /// Whether the line before was blank or part of an indented block, so that an indented line is code.
    may_indent: bool,
    /// A command that goes on in the next line, with the number of its first.
    open: Option<(usize, String)>,
    /// The paragraph so far, with the number of its first line.
    paragraph: Option<(usize, String)>,
}

impl Reader {
    fn read(&mut self, number: usize, line: &str) {
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            self.fence = if self.fence.is_some() { None } else { Some(mark.trim().to_owned()) };
            self.end_of_paragraph();
            self.may_indent = true;
            return;
        }
        let is_blank = line.trim().is_empty();
        match &self.fence {
            Some(language) if SHELLS.contains(&language.as_str()) => self.command(number, line),
            Some(_) => {}
            None if is_blank => self.end_of_paragraph(),
            None if line.starts_with("    ") && self.may_indent => {
                self.command(number, line);
                return;
            }
            None => {
                self.prose(number, line);
                self.may_indent = false;
                return;
            }
        }
        self.may_indent = true;
    }

    fn command(&mut self, number: usize, line: &str) {
        let line = line.trim();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let (first, text) = match self.open.take() {
            Some((first, before)) => (first, format!("{} {line}", before.trim_end_matches('\\').trim_end())),
            None => (number, line.to_owned()),
        };
        if text.ends_with('\\') {
            self.open = Some((first, text));
        } else {
            let text = without_comment(&text).to_owned();
            self.found.push(CommandLine { number: first, text, place: Place::Block });
        }
    }

    fn prose(&mut self, number: usize, line: &str) {
        // A row of a table is a paragraph of its own.
        if line.starts_with('|') {
            self.end_of_paragraph();
        }
        let (_, text) = self.paragraph.get_or_insert_with(|| (number, String::new()));
        text.push_str(line.trim());
        text.push('\n');
    }

    fn end_of_paragraph(&mut self) {
        let Some((number, text)) = self.paragraph.take() else { return };
        let of_piece = |text: String| CommandLine { number, text: text.trim().to_owned(), place: Place::Backquotes };
        self.found.extend(pieces(&text).into_iter().map(of_piece));
    }
}

//! Writes output: data to stdout, messages to stderr. A reader that has gone away is not an error.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use oomph_report::{InBrief, Style, clean_json};

/// What an answer is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text for people.
    Text,
    /// The whole document.
    Json,
    /// The short document.
    Brief,
}

/// Writes data to stdout. When whoever reads it has seen enough, that is a success.
///
/// # Errors
/// When stdout cannot be written for another reason, such as a full disk.
pub fn data(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// Says one line on stderr. There is nobody to tell when that fails.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Says one line on stderr that a quiet run leaves out.
pub fn tell(line: &str, quiet: bool) {
    if !quiet {
        say(line);
    }
}

/// Finds out whether a file can be written, without changing one that is there. A report that cannot be written is better
/// found out before the run than after it.
///
/// # Errors
/// When it cannot.
pub fn writable(path: &Path) -> Result<()> {
    let existed = path.exists();
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if !existed {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Writes an answer: to stdout in the form that was asked for, of which `text` is one, and to `file`, where one is named, as
/// the whole JSON document. Stdout comes first: a run may have taken an hour, and a file that cannot be written must not cost
/// its answer.
///
/// # Errors
/// When a place cannot be written.
pub fn answer<T: InBrief>(report: &T, form: Form, file: Option<&Path>, text: impl FnOnce() -> String) -> Result<()> {
    let document = || -> Result<String> {
        let text = serde_json::to_string_pretty(report).context("cannot write the answer as JSON")?;
        Ok(clean_json(&text).into_owned() + "\n")
    };
    let shown = match form {
        Form::Json => document().and_then(|document| data(&document)),
        Form::Brief => data(&report.in_brief().line()),
        Form::Text => data(&text()),
    };
    let saved = file.map_or(Ok(()), |path| {
        let document = document()?;
        replace(path, |file| file.write_all(document.as_bytes()))
            .with_context(|| format!("cannot write the report to {}", path.display()))
    });
    shown.and(saved)
}

/// Writes a file next to its place and moves it there once it is whole, so that a full disk leaves what was there
/// before. What is not a file, such as a pipe, is written to directly.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    // The name of a link stays one.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&target).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return fs::OpenOptions::new().write(true).open(&target).and_then(|mut file| write(&mut file));
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::Builder::new().prefix(".oomph-").tempfile_in(folder)?;
    write(part.as_file_mut())?;
    let mode = before.map_or_else(|| usual_mode(folder), |before| Some(before.permissions()));
    if let Some(mode) = mode {
        part.as_file().set_permissions(mode)?;
    }
    part.persist(&target)?;
    Ok(())
}

/// The permissions of a file that is made in a folder as any other: the system takes the user's mask into account.
fn usual_mode(folder: &Path) -> Option<fs::Permissions> {
    let probe = tempfile::Builder::new().prefix(".oomph-").make_in(folder, |path| fs::File::create_new(path)).ok()?;
    probe.as_file().metadata().ok().map(|metadata| metadata.permissions())
}

/// What stdout can show.
pub fn style() -> Style {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let columns = || terminal_size::terminal_size_of(&stdout).map(|(width, _)| usize::from(width.0));
    let typed = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Style {
        width: if terminal { columns().or(typed) } else { typed }.unwrap_or(Style::default().width),
        colour: terminal && !set("NO_COLOR") && !dumb,
        unicode: !dumb && is_utf8(|name| std::env::var(name).ok()),
    }
}

/// Whether the locale's characters are UTF-8: the first of the three variables that is set decides.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::is_utf8;

    #[test]
    fn the_first_locale_variable_decides() {
        let with = |all: &str, kind: &str, lang: &str| {
            let (all, kind, lang) = (all.to_owned(), kind.to_owned(), lang.to_owned());
            is_utf8(move |name| match name {
                "LC_ALL" => Some(all.clone()),
                "LC_CTYPE" => Some(kind.clone()),
                _ => Some(lang.clone()),
            })
        };
        assert!(with("", "", "en_US.UTF-8"));
        assert!(with("C.utf8", "C", "C"));
        assert!(!with("C", "", "en_US.UTF-8"));
        assert!(!with("", "", ""));
    }
}

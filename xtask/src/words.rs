//! Finds words of the old voice in help, reports, pages, comments and identifiers.
//!
//! `data/words.toml` has the words and better ones. Pages and help must be free of all of them. For the rest,
//! `data/words-left.toml` holds how many of each are left per folder: more than that fails, so the number only falls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

/// Kinds of files that hold text of the project's own.
const KINDS: [&str; 12] = ["rs", "py", "md", "toml", "trycmd", "ts", "sh", "yaml", "yml", "sql", "html", "snap"];

/// The file of the counts that are left, from the repository's root.
const LEFT: &str = "xtask/data/words-left.toml";

/// Occurrences by word and folder.
type Counts = BTreeMap<String, BTreeMap<String, usize>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    user_facing: Vec<String>,
    ignored: Vec<String>,
    word: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    word: String,
    pattern: Option<String>,
    #[serde(default)]
    except: Vec<String>,
    better: String,
}

/// A word, ready to be looked for.
struct Word {
    name: String,
    better: String,
    pattern: Regex,
    except: Vec<Regex>,
}

/// A word in a file.
#[derive(Debug, PartialEq, Eq)]
struct Hit {
    word: usize,
    path: String,
    line: usize,
}

impl Word {
    fn of(entry: &Entry) -> Result<Self> {
        let build = |pattern: &str| {
            RegexBuilder::new(pattern).case_insensitive(true).build().with_context(|| format!("`{}`", entry.word))
        };
        let pattern = match &entry.pattern {
            Some(pattern) => build(pattern)?,
            None => build(&format!(r"\b{}\b", regex::escape(&entry.word)))?,
        };
        let except = entry.except.iter().map(|pattern| build(pattern)).collect::<Result<_>>()?;
        Ok(Self { name: entry.word.clone(), better: entry.better.clone(), pattern, except })
    }

    /// How often the word is in a line, without its legitimate uses.
    fn count(&self, line: &str) -> usize {
        let legitimate: Vec<_> = self.except.iter().flat_map(|except| except.find_iter(line)).collect();
        let is_legitimate = |found: &regex::Match<'_>| {
            legitimate.iter().any(|use_| use_.start() < found.end() && found.start() < use_.end())
        };
        self.pattern.find_iter(line).filter(|found| !is_legitimate(found)).count()
    }
}

/// What to do with what was found.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Print every occurrence, also those that are left for now.
    pub list: bool,
    /// Lower the counts that are left to what is there.
    pub write: bool,
}

/// Checks the repository.
///
/// # Errors
/// When a word is where it may not be, or the tables cannot be read.
pub fn run(request: Request) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table: Table = read(&root.join("xtask/data/words.toml"))?;
    let words = table.word.iter().map(Word::of).collect::<Result<Vec<_>>>()?;
    let left_path = root.join(LEFT);
    let left: Counts = if left_path.exists() { read(&left_path)? } else { Counts::new() };
    let hits = hits(&root, &table, &words)?;

    if request.list {
        for hit in &hits {
            println!("{}", describe(hit, &words));
        }
    }
    let (strict, counted): (Vec<_>, Vec<_>) =
        hits.iter().partition(|hit| table.user_facing.iter().any(|place| is_in(place, &hit.path)));
    let mut counts = Counts::new();
    for hit in &counted {
        *counts.entry(words[hit.word].name.clone()).or_default().entry(folder(&hit.path)).or_default() += 1;
    }
    if request.write {
        std::fs::write(&left_path, written(&lowered(&counts, &left)))?;
    }

    let mut problems: Vec<String> = strict.iter().map(|hit| describe(hit, &words)).collect();
    for (name, folders) in &counts {
        for (folder_, count) in folders {
            let allowed = left.get(name).and_then(|folders| folders.get(folder_)).copied().unwrap_or(0);
            if *count > allowed && !(request.write && left.is_empty()) {
                problems.push(format!("{folder_}: `{name}` {count} times, {allowed} allowed by {LEFT}:"));
                let here = counted.iter().filter(|hit| words[hit.word].name == *name && folder(&hit.path) == *folder_);
                problems.extend(here.map(|hit| format!("  {}", describe(hit, &words))));
            }
        }
    }
    let total: usize = counts.values().flat_map(BTreeMap::values).sum();
    println!("words: {} words, {total} uses left in code and tests, {} in pages and help", words.len(), strict.len());
    ensure!(
        problems.is_empty(),
        "words of the old voice (xtask/data/words.toml has better ones):\n{}",
        problems.join("\n")
    );
    Ok(())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

fn describe(hit: &Hit, words: &[Word]) -> String {
    let word = &words[hit.word];
    format!("{}:{}: `{}` -> {}", hit.path, hit.line, word.name, word.better)
}

fn hits(root: &Path, table: &Table, words: &[Word]) -> Result<Vec<Hit>> {
    let mut hits = Vec::new();
    for path in tracked(root)? {
        let kind = Path::new(&path).extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if !KINDS.contains(&kind) || table.ignored.iter().any(|place| is_in(place, &path)) {
            continue;
        }
        // A file may be deleted and still be tracked; what is not UTF-8 is data.
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        // Most words are in no file, and looking through a whole file is faster than line by line.
        let present: Vec<(usize, &Word)> =
            words.iter().enumerate().filter(|(_, word)| word.pattern.is_match(&text)).collect();
        for (index, line) in text.lines().enumerate() {
            for &(word, found) in &present {
                hits.extend((0..found.count(line)).map(|_| Hit { word, path: path.clone(), line: index + 1 }));
            }
        }
    }
    Ok(hits)
}

/// The files that git tracks or would track, from the repository's root.
pub fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Whether a path is the place or lies in it. A `*` in a place is one folder of any name.
fn is_in(place: &str, path: &str) -> bool {
    match place.split_once('*') {
        None => path == place || (place.ends_with('/') && path.starts_with(place)),
        Some((before, after)) => path
            .strip_prefix(before)
            .and_then(|rest| rest.split_once('/'))
            .is_some_and(|(_, rest)| after.trim_start_matches('/') == rest),
    }
}

/// Where an occurrence is counted: the crate, or the top folder.
fn folder(path: &str) -> String {
    let depth = if path.starts_with("crates/") { 2 } else { 1 };
    let parts: Vec<&str> = path.split('/').collect();
    parts[..depth.min(parts.len())].join("/")
}

/// The counts as they are now, where they are lower than what was allowed; all of them where nothing was.
fn lowered(counts: &Counts, left: &Counts) -> Counts {
    if left.is_empty() {
        return counts.clone();
    }
    let mut lower = Counts::new();
    for (name, folders) in left {
        for (folder, allowed) in folders {
            let now = counts.get(name).and_then(|folders| folders.get(folder)).copied().unwrap_or(0);
            if now > 0 {
                lower.entry(name.clone()).or_default().insert(folder.clone(), now.min(*allowed));
            }
        }
    }
    lower
}

fn written(counts: &Counts) -> String {
    let mut text = String::from(
        "# Words of the old voice that are left, by folder. The numbers only go down: mend some, then run\n\
         # `cargo xtask words --write`. `cargo xtask words --list` shows where they are.\n",
    );
    for (name, folders) in counts {
        text.push_str(&format!("\n[\"{name}\"]\n"));
        for (folder, count) in folders {
            text.push_str(&format!("\"{folder}\" = {count}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str) -> Word {
        let table: Table = toml::from_str(include_str!("../data/words.toml")).expect("the table is valid");
        Word::of(table.word.iter().find(|entry| entry.word == name).expect("a word of the table")).expect("a pattern")
    }

    #[test]
    fn legitimate_uses_do_not_count() {
        let stage = word("Stage");
        assert_eq!(stage.count("let stage = Stage { resnet, transformer }; // a pipeline stage of ZeRO stage 3"), 0);
        assert_eq!(stage.count("use crate::stage::Ended;"), 1);
        let is_no = word("is no");
        assert_eq!(is_no.count("there is no GPU, and it is no longer needed"), 0);
        assert_eq!(is_no.count("`-1` is no literal"), 1);
        assert_eq!(word("Scene").count("class Scenes(Dataset):"), 0);
        assert_eq!(word("PATIENCE").count("EarlyStopping(patience=3)"), 0);
    }

    #[test]
    fn places_are_files_folders_and_one_star() {
        assert!(is_in("docs/", "docs/a/b.md") && !is_in("docs/", "docsx/a.md"));
        assert!(is_in("crates/*/README.md", "crates/oomph/README.md"));
        assert!(!is_in("crates/*/README.md", "crates/oomph/tests/README.md"));
        assert_eq!(folder("crates/oomph/src/main.rs"), "crates/oomph");
        assert_eq!(folder("README.md"), "README.md");
    }

    #[test]
    fn counts_only_fall() {
        let counts = |count| Counts::from([("told".to_owned(), BTreeMap::from([("python".to_owned(), count)]))]);
        assert_eq!(lowered(&counts(3), &counts(5)), counts(3));
        assert_eq!(lowered(&counts(7), &counts(5)), counts(5));
        assert_eq!(lowered(&Counts::new(), &counts(5)), Counts::new());
    }
}

//! Tests that what is said in more than one place is the same everywhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use oomph_remedy::Catalogue;

/// Words that follow the program's name in prose and are no commands.
const PROSE: &str = "and answers are as asks at by can cannot carries compares could counts did does finds for from gives had \
    has have here in installed is itself keeps know knows makes may measured must needs never of on or prints puts reads runs says \
    shows starts takes that to tried tries uses was were will with would writes";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a folder that end so, with their texts.
fn texts(folder: &str, end: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no {end}");
    found
}

fn commands() -> BTreeSet<String> {
    let definition = crate::cli::definition();
    let names = definition.get_subcommands().flat_map(|one| {
        let names = one.get_all_aliases().chain([one.get_name()]);
        names.map(str::to_owned).collect::<Vec<_>>()
    });
    names.chain(["help".to_owned()]).collect()
}

/// The words of a line of a shell, up to what is the shell's own; `None` where they cannot be split.
fn words(line: &str) -> Option<Vec<String>> {
    let ends = [" | ", " > ", " >> ", " 2> ", " && ", " || ", "; ", " # ", " &"];
    let end = ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
    shlex::split(line[..end].trim().trim_end_matches('\\'))
}

/// Why a command line is not one of this program's; `None` where it is one. Placeholders, in capitals or as `...`,
/// stand for values.
fn wrong(line: &str) -> Option<String> {
    let Some(words) = words(line) else { return Some("its quotes do not match".to_owned()) };
    // A synopsis: what is left open cannot be parsed, but what is named has to be there.
    let is_open = words.iter().any(|word| word.contains("...") || word.contains('[') || word.contains('…'));
    if is_open {
        return undeclared(&words);
    }
    let error = crate::cli::definition().try_get_matches_from(&words).err()?;
    let has_place = |word: &String| {
        let letters = word.chars().filter(|letter| letter.is_alphabetic());
        word.chars().any(char::is_alphabetic) && letters.clone().all(char::is_uppercase)
    };
    match error.kind() {
        // What is mentioned by its name only.
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => undeclared(&words),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if words.iter().any(has_place) => undeclared(&words),
        ErrorKind::InvalidValue if words.last().is_some_and(|word| word.starts_with("--")) => undeclared(&words),
        _ => Some(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// A command or an option among the words that the program does not have.
fn undeclared(words: &[String]) -> Option<String> {
    let mut command = crate::cli::definition();
    for word in words.iter().skip(1).take_while(|word| *word != "--") {
        if let Some(below) = command.find_subcommand(word) {
            command = below.clone();
            continue;
        }
        let name = word.trim_matches(['[', ']', '.']).split('=').next().unwrap_or_default();
        let Some(option) = name.strip_prefix("--") else { continue };
        let known = crate::cli::definition();
        let all = command.get_arguments().chain(known.get_arguments());
        let has = all.flat_map(|one| one.get_long()).any(|long| long == option);
        if !has && !["help", "version", ""].contains(&option) {
            return Some(format!("there is no option --{option}"));
        }
    }
    let first = words.iter().skip(1).find(|word| !word.starts_with(['-', '[']));
    first.filter(|word| !commands().contains(*word)).map(|word| format!("there is no command {word}"))
}

/// Words after the program's name, wherever that is in a text, that are neither commands nor prose.
fn unknown_words(text: &str) -> Vec<String> {
    let commands = commands();
    let mut found = Vec::new();
    for (at, _) in text.match_indices("oomph ") {
        if text[..at].ends_with(|before: char| before.is_alphanumeric() || "-_/.".contains(before)) {
            continue;
        }
        let word: String =
            text[at + 6..].chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '-').collect();
        if !word.is_empty()
            && !word.starts_with('-')
            && !commands.contains(&word)
            && !PROSE.split(' ').any(|known| known == word)
        {
            found.push(word);
        }
    }
    found
}

#[test]
fn what_the_documentation_advises_is_a_command() {
    let mut problems = Vec::new();
    let mut lines = 0;
    for page in oomph_pages::pages(&root()).unwrap() {
        for line in page.lines {
            lines += 1;
            let why = wrong(&line.call());
            problems.extend(why.map(|why| format!("{}:{}: `{}`: {why}", page.path, line.number, line.text)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(lines > 100, "{lines} command lines were found");
}

#[test]
fn what_remedies_and_answers_advise_is_a_command() {
    let mut problems = Vec::new();
    let places = [
        ("crates/oomph-remedy/data", ".toml"),
        ("crates/oomph-report/tests/snapshots", ".snap"),
        ("crates/oomph/tests/cmd", ".trycmd"),
        ("crates/oomph/tests/cmd80", ".trycmd"),
    ];
    for (path, text) in places.iter().flat_map(|(folder, end)| texts(folder, end)) {
        // What a transcript types may be wrong on purpose; what it shows may not.
        let shown: Vec<&str> = text.lines().filter(|line| !line.starts_with("$ ")).collect();
        let shown = shown.join("\n");
        problems.extend(unknown_words(&shown).into_iter().map(|word| format!("{}: oomph {word}", path.display())));
        for line in oomph_pages::quoted_calls(&shown) {
            problems.extend(wrong(&line).map(|why| format!("{}: `{line}`: {why}", path.display())));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn drift_of_a_command_is_found() {
    assert!(wrong("oomph wach --once").is_some());
    assert!(wrong("oomph watch --onec").is_some());
    assert!(wrong("oomph explain --gpu NAME --wram SIZE FILE...").is_some());
    assert_eq!(wrong("oomph watch --once"), None);
    assert_eq!(wrong("oomph dry-run --gpu l4 -- python train.py --batch 8 | tee log"), None);
    assert_eq!(unknown_words("stop the others (or oomph wach)"), ["wach"]);
}

#[test]
fn the_code_that_looks_at_a_program_knows_no_remedy() {
    let source = include_str!("fix/situation.rs");
    let catalogue = Catalogue::builtin();
    for remedy in catalogue.remedies() {
        assert!(!source.contains(&format!("{:?}", remedy.id)), "fix/situation.rs names the remedy {}", remedy.id);
    }
    // The other way round: what the catalogue takes for a sign is looked for.
    let signs = catalogue.remedies().iter().flat_map(|remedy| &remedy.shown_by);
    let facts: BTreeSet<&String> = signs.flat_map(|shown| shown.all.iter().chain(&shown.none)).collect();
    assert!(facts.len() > 15);
    for fact in facts {
        let whole = source.contains(&format!("{fact:?}"));
        let parts = fact.split_once('=').is_some_and(|(name, value)| {
            let argument = name != "argument" || source.contains(&format!("{value:?}"));
            argument && source.contains(&format!("{name:?}"))
        });
        assert!(whole || parts, "nothing looks for {fact:?}");
    }
}

#[test]
fn a_name_of_the_protocol_is_declared_once() {
    let paths = oomph_protocol::paths::ALL.iter().map(|(_, path)| *path);
    // Shorter ones, such as `hook` and `tmp`, are words of other things as well.
    let paths = paths.filter(|path| path.len() > 7);
    let names: Vec<String> = paths
        .chain(oomph_protocol::SCHEMAS.iter().map(|(_, schema)| schema.text))
        .map(|name| format!("{name:?}"))
        .collect();
    let mut problems = Vec::new();
    for (path, text) in texts("crates", ".rs") {
        let place = path.to_string_lossy();
        let is_test = place.contains("/tests/") || place.contains("/benches/") || place.ends_with("tests.rs");
        if is_test || place.contains("/oomph-protocol/") || place.contains("/target/") {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        problems.extend(names.iter().filter(|name| code.contains(*name)).map(|name| format!("{place}: {name}")));
    }
    assert!(problems.is_empty(), "declared a second time:\n{}", problems.join("\n"));
}

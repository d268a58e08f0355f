//! Expands a matrix into cells: for each combination of values a command, its environment and its cards.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args as _, FromArgMatches as _};
use oomph_report::{SweepAxis, clean};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::file::{COMMITS, Rule, SweepFile};
use crate::changes::Changes;
use crate::cli::ProgramArgs;
use crate::failure::hinted;
use crate::program::Program;
use crate::syntax;

/// What the name of a cell is made of begins with; raised when the same command would be answered otherwise.
const CONTRACT: &str = "oomph.sweep-cell/1";

/// Hexadecimal digits of a cell's name.
const NAME: usize = 16;

/// One dry run of a sweep.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its place in the matrix, from 0.
    pub index: usize,
    /// Its name: the digest of all that it was asked for, with the commit and oomph's version.
    pub id: String,
    /// The value on each axis.
    pub values: BTreeMap<String, String>,
    /// Variables of the program's environment.
    pub env: Vec<(String, String)>,
    /// The options of `oomph dry-run`, ready to be typed.
    pub options: Vec<String>,
    /// The commit that it runs, as git names it in full.
    pub commit: Option<String>,
    /// The folder that the program runs in.
    pub directory: PathBuf,
    /// The program, its cards and how it is run.
    pub program: Program,
}

impl Cell {
    /// The command and environment of its run.
    pub fn changes(&self) -> Changes {
        Changes { env: self.env.clone(), ..Changes::none(&self.program.command) }
    }

    /// `gpu t4, batch 8`, in the order of the axes.
    pub fn words(&self, axes: &[SweepAxis]) -> String {
        let word = |axis: &SweepAxis| Some(format!("{} {}", axis.name, self.values.get(&axis.name)?));
        clean(&axes.iter().filter_map(word).collect::<Vec<_>>().join(", ")).into_owned()
    }
}

/// Where the program of a sweep lies: below the file's folder, or where a commit was written out.
pub struct Places<'a> {
    /// The folder of the file.
    pub folder: &'a Path,
    /// Each commit as typed, with its full name and the folder that the program runs in.
    pub commits: &'a BTreeMap<String, (String, PathBuf)>,
}

/// All cells of a file, the last axis varying first.
///
/// # Errors
/// When an option has a value that makes no sense.
pub fn expand(file: &SweepFile, places: &Places<'_>) -> Result<Vec<Cell>> {
    let mut parser = ProgramArgs::augment_args(clap::Command::new("sweep").no_binary_name(true));
    let count: usize = file.axes.iter().map(|axis| axis.values.len()).product();
    let mut cells = Vec::new();
    for number in 0..count {
        let mut left = number;
        let mut chosen = vec![0; file.axes.len()];
        for (place, axis) in file.axes.iter().enumerate().rev() {
            chosen[place] = left % axis.values.len();
            left /= axis.values.len();
        }
        let value = |place: usize| file.axes[place].values[chosen[place]].as_str();
        let is_excluded =
            |rule: &Rule| rule.iter().all(|(place, values)| values.iter().any(|excluded| excluded == value(*place)));
        if file.exclude.iter().any(is_excluded) {
            continue;
        }
        let of = |name: &str| file.axes.iter().position(|axis| axis.name == name).map(&value);
        let command: Vec<String> = file.program.iter().map(|word| word.filled(of)).collect();
        let env: Vec<(String, String)> = file.env.iter().map(|(name, text)| (name.clone(), text.filled(of))).collect();
        let options: Vec<String> = file
            .options
            .iter()
            .map(|(word, text)| {
                text.as_ref().map_or_else(|| word.clone(), |text| format!("{word}={}", text.filled(of)))
            })
            .collect();
        let commit = of(COMMITS).and_then(|typed| places.commits.get(typed));
        let values: BTreeMap<String, String> =
            file.axes.iter().enumerate().map(|(place, axis)| (axis.name.clone(), value(place).to_owned())).collect();
        let name = json!([CONTRACT, env!("CARGO_PKG_VERSION"), command, env, options, commit.map(|(name, _)| name)]);
        cells.push(Cell {
            index: cells.len(),
            id: digest(name.to_string().as_bytes())[..NAME].to_owned(),
            program: program(&mut parser, &options, &command)?,
            values,
            env,
            options,
            commit: commit.map(|(name, _)| name.clone()),
            directory: commit.map_or_else(|| places.folder.to_owned(), |(_, folder)| folder.clone()),
        });
    }
    if cells.is_empty() {
        return Err(hinted("everything is excluded, so there is nothing to run", "take a line out of `exclude`"));
    }
    Ok(cells)
}

/// What `oomph dry-run OPTIONS -- COMMAND` would run.
fn program(parser: &mut clap::Command, options: &[String], command: &[String]) -> Result<Program> {
    let words = options.iter().map(String::as_str).chain(["--"]).chain(command.iter().map(String::as_str));
    let wrong = |error: clap::Error| {
        if let Some(refused) = syntax::refused(&error) {
            return refused.clone().into();
        }
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        hinted(line, "the keys of a sweep take what the options of `oomph dry-run` take")
    };
    let matches = parser.try_get_matches_from_mut(words.map(OsString::from)).map_err(wrong)?;
    let args = ProgramArgs::from_arg_matches(&matches).map_err(wrong)?;
    Ok(Program { history: false, reads: true, ..Program::new(args)? })
}

/// A name for a whole matrix, by which a script knows that its numbers still mean the same cells.
pub fn matrix_name(cells: &[Cell]) -> String {
    let ids: Vec<&str> = cells.iter().map(|cell| cell.id.as_str()).collect();
    digest(ids.join("\n").as_bytes())[..12].to_owned()
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Result<Vec<Cell>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.yaml");
        std::fs::write(&path, text).unwrap();
        let places = Places { folder: folder.path(), commits: &BTreeMap::new() };
        expand(&SweepFile::read(&path)?, &places)
    }

    const TEXT: &str = "\
program: [python, train.py, '--name={name}', '{batch}']
matrix: {gpu: [t4, l4], batch: [1, 2], name: ['a b', '{batch}']}
env: {SIZE: '{batch}'}
exclude: [{gpu: t4, batch: 2, name: 'a b'}]
";

    #[test]
    fn the_matrix_is_whole_and_in_order() {
        let cells = cells(TEXT).unwrap();
        assert_eq!(cells.len(), 7);
        let words: Vec<String> =
            cells.iter().map(|cell| cell.values.values().cloned().collect::<Vec<_>>().join("/")).collect();
        assert_eq!(words[..3], ["1/t4/a b", "1/t4/{batch}", "2/t4/{batch}"]);
        assert_eq!(words[6], "2/l4/{batch}");
        // A value is put in once: what it holds is not looked at again.
        assert_eq!(cells[1].program.command, ["python", "train.py", "--name={batch}", "1"]);
        assert_eq!(cells[2].env, [("SIZE".to_owned(), "2".to_owned())]);
        assert_eq!(cells[2].program.cards[0].label, "t4");
        let ids: std::collections::BTreeSet<&String> = cells.iter().map(|cell| &cell.id).collect();
        assert_eq!(ids.len(), 7);
    }

    #[test]
    fn a_name_stays_when_the_matrix_grows() {
        let small = cells(TEXT).unwrap();
        let large = cells(&TEXT.replace("[1, 2]", "[8, 1, 2]")).unwrap();
        assert!(small.iter().all(|cell| large.iter().any(|other| other.id == cell.id)));
        let other = cells(&TEXT.replace("SIZE:", "SIZES:")).unwrap();
        assert!(small.iter().zip(&other).all(|(one, other)| one.id != other.id));
        assert_ne!(matrix_name(&small), matrix_name(&large));
    }

    #[test]
    fn options_mean_what_they_mean_in_a_dry_run() {
        let text = "program: x {n}\nmatrix: {n: [1], vram: [2GiB, 4GiB]}\nsteps: 2\ntimeout: 90s\n";
        let cells = cells(text).unwrap();
        assert_eq!(cells[1].program.cards[0].capacity_bytes(), Some(4 << 30));
        assert_eq!(cells[0].program.stop.steps, 2);
        let error = |text: &str| format!("{:#}", super::tests::cells(text).unwrap_err());
        assert!(error("program: x {n}\nmatrix: {n: [1]}\nsteps: many\n").contains("many"));
        assert!(error("program: x {n}\nmatrix: {n: [1]}\nvalues: some\n").contains("some"));
        assert!(error("program: x\nmatrix: {gpu: [t5000]}\n").contains("t5000"));
        assert!(error("program: x {n}\nmatrix: {n: [1]}\nexclude: [{n: 1}]\n").contains("everything is excluded"));
    }
}

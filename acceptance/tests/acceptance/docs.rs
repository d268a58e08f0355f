//! Runs every command line of README.md and of the pages of docs, as printed and in the order of its page.
//!
//! Each page with lines is a test, in a folder with what the pages speak of (`acceptance/docs/files`). A line ends with status 0,
//! unless `acceptance/docs/lines.toml` says which other status the page promises. That table also has the values of placeholders
//! and, with a reason, the few lines that cannot run everywhere. A new line needs no entry if it runs; an entry that is about no
//! line fails.
//!
//! What `oomph` hands over to `oomph-fleet` is run by that program's own tests (`crates/oomph-fleet/tests/docs.rs`).
//!
//! A name in backquotes, such as `oomph plan`, is one where the command itself says that arguments are missing.

mod reader;
mod table;

use std::os::unix::process::ExitStatusExt as _;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use oomph_pages::{CommandLine, Place};

use self::reader::{Reader, has_gpu};
use self::table::{Chapter, OfLine, Table, filled};
use crate::again::tried;
use crate::binary;
use crate::run::{Finished, Turn};

/// What the command line's parser says of a line that is only the name of a command or an option.
const UNFINISHED: [&str; 2] = ["required arguments were not provided", "a value is required for"];

/// One test for each page, and one of the table.
pub fn trials() -> Vec<Trial> {
    let pages = oomph_pages::pages(binary::root()).expect("the documentation is in the repository");
    let table = Table::read();
    let chapters = table.chapters(&pages);
    let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
    let mut trials = vec![Trial::test("docs::the-table-is-in-use", {
        let (table, chapters) = (table.clone(), chapters.clone());
        move || table.is_in_use(&chapters).map_err(failed)
    })];
    trials.extend(chapters.into_iter().map(|chapter| {
        let name = chapter.path.trim_start_matches("docs/").trim_end_matches(".md");
        let table = table.clone();
        tried(format!("docs::{name}"), move || runs(&chapter, &table).map_err(failed))
    }));
    trials
}

/// How many lines of a page were dealt with in which way.
#[derive(Debug, Default)]
struct Tally {
    as_printed: usize,
    in_another_form: usize,
    names: usize,
    not_run: usize,
}

fn runs(chapter: &Chapter, table: &Table) -> Result<()> {
    let mut reader = Reader::new()?;
    let _turn = if chapter.needs.alone { Turn::Alone } else { Turn::Shared }.take();
    for line in &chapter.needs.before {
        reader.prepare(line)?;
    }
    let meanwhile = match &chapter.needs.meanwhile {
        Some(line) => Some(reader.start_meanwhile(line)?),
        None => None,
    };
    let begun = Instant::now();
    let (mut problems, mut tally) = (Vec::new(), Tally::default());
    for (line, of_line) in &chapter.lines {
        let text = filled(&line.installed(), &chapter.needs.values, &table.values);
        let result = run(&reader, &chapter.path, line, &text, of_line, &mut tally);
        problems.extend(result.err().map(|error| format!("{}:{}: {error:#}", chapter.path, line.number)));
    }
    if let Some(meanwhile) = meanwhile {
        meanwhile.end()?;
    }
    let Tally { as_printed, in_another_form, names, not_run } = tally;
    eprintln!(
        "{}: {as_printed} run as printed, {in_another_form} in another form, {names} names, {not_run} not run; {:.1} s",
        chapter.path,
        begun.elapsed().as_secs_f64()
    );
    ensure!(problems.is_empty(), "{}", problems.join("\n\n"));
    Ok(())
}

fn run(reader: &Reader, page: &str, line: &CommandLine, text: &str, of_line: &OfLine, tally: &mut Tally) -> Result<()> {
    if let Some(why) = &of_line.not_run {
        println!("{page}: `{}` is not tried, because {why}", line.text);
        tally.not_run += 1;
        return Ok(());
    }
    let mut text = of_line.instead.clone().unwrap_or_else(|| [text, &of_line.then].join(" "));
    let mut is_as_printed = of_line.instead.is_none();
    if let Some(without) = of_line.without_gpu.as_ref().filter(|_| !has_gpu()) {
        let finished = reader.run(&text, &of_line.input, of_line.interrupt)?;
        ends_with(&finished, without.status, &without.says)?;
        text.clone_from(&without.instead);
        is_as_printed = false;
    }
    let begun = Instant::now();
    let finished = reader.run(&text, &of_line.input, of_line.interrupt)?;
    let stderr = String::from_utf8_lossy(&finished.stderr);
    if line.place == Place::Backquotes
        && status(&finished) == 2
        && UNFINISHED.iter().any(|words| stderr.contains(words))
    {
        tally.names += 1;
        return Ok(());
    }
    if std::env::var_os("OOMPH_DOCS_TIMES").is_some() {
        println!("{:7.1} s  {page}: {text}", begun.elapsed().as_secs_f64());
    }
    ends_with(&finished, of_line.status, &of_line.says)?;
    finished.ensure(!stderr.lines().any(|line| line.starts_with("error: ")), "there is an error")?;
    for name in &of_line.makes {
        let path = reader.folder().join(name);
        path.symlink_metadata().with_context(|| format!("it did not make {name}\n{}", finished.story()))?;
    }
    *if is_as_printed { &mut tally.as_printed } else { &mut tally.in_another_form } += 1;
    Ok(())
}

/// The exit status, as a shell shows it.
fn status(finished: &Finished) -> i32 {
    let by_signal = || finished.status.signal().map(|signal| signal + 128);
    finished.status.code().or_else(by_signal).unwrap_or(-1)
}

fn ends_with(finished: &Finished, expected: i32, words: &str) -> Result<()> {
    let found = status(finished);
    finished.ensure(found == expected, format_args!("the status is {found}, and {expected} is promised"))?;
    let says = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(words);
    finished.ensure(says(&finished.stdout) || says(&finished.stderr), format_args!("it does not say {words:?}"))
}

//! The commands `oomph-fleet collect` and `oomph-fleet query`.
#![forbid(unsafe_code)]

mod cli;

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use oomph_fleet::collect::{self, Dataset};
use oomph_fleet::hint::{Hinted, hinted};
use oomph_fleet::name::spelt;
use oomph_fleet::query::{self, Engine, Format, USUAL};
use oomph_fleet::read::{Reading, ladder};
use oomph_gpu::{Catalogue, size};
use oomph_report::clean;

use crate::cli::{Cli, CollectArgs, Command, QueryArgs, Summary};

/// Rows are written out when they have gathered to so many bytes.
const BATCH_BYTES: usize = 64 << 20;
/// And after so long, so that little is lost when a collect is killed.
const BATCH_TIME: Duration = Duration::from_secs(30);
/// What reading one snapshot may take, in times the largest one.
const SNAPSHOT_MEMORY: u64 = 2;

fn main() -> ExitCode {
    let cli = match Cli::parsed() {
        Ok(cli) => cli,
        Err(error) => {
            let status = u8::try_from(error.exit_code()).unwrap_or(2);
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let result = match &cli.command {
        Command::Collect(args) => collect(args, cli.quiet),
        Command::Query(args) => ask(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Whether whoever reads the answer has seen enough. Some writers keep only the words of the error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_pipe = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(of_pipe) || cause.to_string().contains("Broken pipe")
    })
}

/// Says on stderr what went wrong: the chain of causes on one line, and advice where there is any.
fn report(error: &anyhow::Error) -> ExitCode {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "error: {}", clean(&spelt(&line)));
    if let Some(hinted) = error.chain().find_map(|cause| cause.downcast_ref::<Hinted>()) {
        let _ = writeln!(stderr, "hint: {}", clean(&spelt(&hinted.hint)));
    }
    ExitCode::from(2)
}

fn collect(args: &CollectArgs, quiet: bool) -> Result<()> {
    let largest_snapshot = size::parse(&args.snapshot_limit)?;
    let catalogue = Catalogue::builtin();
    let gpu = args
        .gpu
        .as_deref()
        .map(|name| catalogue.find(name).map_err(|error| hinted(error.to_string(), "`oomph gpus` lists the cards")));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let cores = thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let options = collect::Options {
        sources: args.sources.clone(),
        reading: Reading {
            gpu: gpu.transpose()?.cloned(),
            what_if: args.what_if,
            events: args.events,
            salvage: args.salvage,
            largest_snapshot,
            snapshot_memory: largest_snapshot.saturating_mul(SNAPSHOT_MEMORY),
            cards: ladder(),
            now_us: i64::try_from(now).unwrap_or(i64::MAX),
        },
        workers: args.jobs.map_or(cores, usize::from),
        batch_bytes: BATCH_BYTES,
        batch_files: args.batch_files,
        batch_time: BATCH_TIME,
    };
    let dataset = Dataset::open(&args.into)?;
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    // The template is constant and has only known keys; a plain spinner would do as well.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>3} collected {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let progress = |files: u64, bytes: u64| bar.set_message(format!("{files} files, {}", size::format(bytes)));
    let summary = collect::collect(&dataset, &options, &progress);
    bar.finish_and_clear();
    let summary = summary?;
    match args.format {
        Summary::Json => say(&format!("{}\n", serde_json::to_string(&summary)?)),
        Summary::Text => say(&spelt(&summary_text(&summary))),
    }
}

/// A summary for people.
fn summary_text(summary: &collect::Summary) -> String {
    let mut text = format!(
        "{} files collected into {}: {} logs, {} snapshots, {} reports, {} journals; {} and {} rows in {:.1} s\n",
        summary.files,
        clean(&summary.dataset),
        summary.logs,
        summary.snapshots,
        summary.reports,
        summary.journals,
        size::format(summary.bytes),
        summary.rows,
        summary.seconds,
    );
    if summary.known > 0 {
        text.push_str(&format!("{} files were collected before\n", summary.known));
    }
    if summary.completed_batches > 0 {
        text.push_str(&format!("{} batches of a collect that was killed were completed\n", summary.completed_batches));
    }
    if summary.bad > 0 {
        text.push_str(&format!(
            "{} files could not be read; next: oomph-fleet query \"SELECT reason, count(*) FROM bad_files GROUP BY reason\" {}\n",
            summary.bad,
            clean(&summary.dataset),
        ));
    }
    text
}

fn ask(args: &QueryArgs) -> Result<()> {
    if args.schema {
        return say(&query::schema_text());
    }
    if args.list {
        return list(args.words.first().map(String::as_str));
    }
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    if let Some(path) = &args.html {
        let [dataset] = words[..] else {
            return Err(hinted(
                "--html answers all the usual questions",
                "give the dataset alone: oomph-fleet query --html FILE DIR",
            ));
        };
        let page = query::page(&Engine::open(dataset)?, dataset)?;
        return fs::write(path, page).with_context(|| format!("cannot write {}", path.display()));
    }
    let [sql, dataset] = words[..] else {
        return Err(hinted(
            "a query needs a question and a dataset",
            "for example: oomph-fleet query top_lines DIR; `oomph-fleet query --list` lists the usual questions",
        ));
    };
    let sql = match query::find(sql) {
        Some(usual) => usual.file,
        None if !sql.trim().contains(char::is_whitespace) => {
            let hint =
                "`oomph-fleet query --list` lists the usual questions; anything else is SQL: SELECT ... FROM failures";
            return Err(hinted(format!("{sql} is not the name of a question"), hint));
        }
        None => sql,
    };
    let stdout = io::stdout();
    if args.format == Format::Arrow && stdout.is_terminal() {
        return Err(hinted(
            "Arrow is not for a terminal",
            "send it to a file or a program: ... --format arrow > answer.arrows",
        ));
    }
    let rows = Engine::open(dataset)?.ask(sql)?;
    let mut stdout = BufWriter::new(stdout.lock());
    query::write(rows, args.format, &mut stdout)?;
    stdout.flush().context("cannot write to stdout")
}

fn list(name: Option<&str>) -> Result<()> {
    match name {
        Some(name) => match query::find(name) {
            Some(usual) => say(usual.file),
            None => {
                Err(hinted(format!("{name} is not the name of a question"), "`oomph-fleet query --list` lists them"))
            }
        },
        None => {
            let line = |usual: &query::Usual| format!("{:<15} {}\n", usual.name, usual.asks());
            say(&USUAL.iter().map(line).collect::<String>())
        }
    }
}

fn say(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to stdout")
}

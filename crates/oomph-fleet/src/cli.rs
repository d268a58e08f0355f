//! Defines the command line.

use std::ffi::{OsStr, OsString};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use oomph_fleet::name::{is_called_oomph, spelt};
use oomph_fleet::query::Format;

const COLLECT_HELP: &str = "\
Examples:
  The logs and snapshots of a folder, into a dataset:
      oomph-fleet collect /var/log/train --into fleet

  Again every night; what has been collected is skipped:
      oomph-fleet collect 'runs/*/logs' archive-2026-11.tar.gz --into fleet

  From and to an object store (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, ...):
      oomph-fleet collect s3://jobs/logs --into s3://fleet/oom

  Then ask it:
      oomph-fleet query top_lines fleet

What is collected: logs; memory snapshots (pickle) and profiler traces, also
gzip or zstd; the reports of `oomph dry-run --format json`; the journals of
`oomph run`. The type of a file is detected from its content. A file that
cannot be read is listed in the table bad_files with the reason.

A collect that was killed is started again with the same words: nothing is
lost, and nothing is there twice.

Exit status:
  0    collected; files that could not be read are counted
  2    wrong usage, a source does not exist, or the dataset cannot be written";

const QUERY_HELP: &str = "\
Examples:
  Which lines of programs run out of memory most often?
      oomph-fleet query top_lines fleet

  The ten usual questions, the tables, the columns:
      oomph-fleet query --list
      oomph-fleet query --schema

  A question of your own:
      oomph-fleet query \"SELECT model, count(*) AS deaths FROM failures
                   WHERE is_gpu_oom AND day >= '2026-11-01'
                   GROUP BY model ORDER BY deaths DESC\" fleet

  With functions for what SQL is clumsy at:
      oomph-fleet query \"SELECT path, gib(needed_bytes) FROM reports
                   WHERE fits('rtx-4090', needed_bytes)
                     AND stack_has(id, 'attention')\" fleet

  For a program, for a spreadsheet, for pandas:
      oomph-fleet query top_causes fleet --format json
      oomph-fleet query top_causes fleet --format csv > top_causes.csv
      oomph-fleet query 'SELECT * FROM failures' fleet --format arrow > failures.arrows

  As a page for the browser:
      oomph-fleet query --html fleet.html fleet

The dataset is plain Parquet: DuckDB, Spark, Trino, pandas and Polars read the
same files (docs/fleet.md shows how).

Exit status:
  0    answered
  2    wrong usage, the query is not understood, or there is no dataset";

const QUERY_USAGE: &str = "oomph-fleet query [OPTIONS] QUERY DIR\n       oomph-fleet query --html FILE DIR";

/// Collects the out-of-memory failures of many machines, and answers questions about them.
#[derive(Debug, Parser)]
#[command(name = "oomph-fleet", bin_name = "oomph-fleet", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Say nothing on stderr but warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    /// When it is not understood, or asks for help.
    pub fn parsed() -> Result<Self, clap::Error> {
        let mut definition = Self::command();
        if is_called_oomph() {
            let named = |help: &str| spelt(help).into_owned();
            definition = definition
                .bin_name("oomph")
                .mut_subcommand("collect", |collect| collect.after_help(named(COLLECT_HELP)))
                .mut_subcommand("query", |query| {
                    query.after_help(named(QUERY_HELP)).override_usage(named(QUERY_USAGE))
                });
        }
        let matches = definition.try_get_matches_from_mut(std::env::args_os().map(no_option))?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))
    }
}

/// SQL that begins with a comment, as that of `--list NAME` does, would be taken for an option: a new line goes before it.
fn no_option(argument: OsString) -> OsString {
    let begins = argument.to_str().and_then(|text| text.strip_prefix("--"));
    if begins.is_some_and(|rest| rest.starts_with(char::is_whitespace)) {
        return OsString::from_iter([OsStr::new("\n"), &argument]);
    }
    argument
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Collect logs, snapshots, reports and journals of many runs into one Parquet dataset
    #[command(after_help = COLLECT_HELP)]
    Collect(CollectArgs),
    /// Ask a collected dataset in SQL, or one of the usual questions by its name
    #[command(after_help = QUERY_HELP, override_usage = QUERY_USAGE)]
    Query(QueryArgs),
}

/// What `oomph-fleet collect` takes.
#[derive(Debug, Args)]
pub struct CollectArgs {
    /// Files, folders, patterns, tar files, s3://BUCKET/PREFIX
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<String>,

    /// The dataset: a folder, which is made where it is missing, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR")]
    pub into: String,

    /// The card that the snapshots were taken on, which a snapshot does not say
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,

    /// Replay each snapshot under other settings and on other cards; this takes most of the time
    #[arg(long)]
    pub what_if: bool,

    /// Keep the events of snapshots as well; the dataset becomes many times larger
    #[arg(long)]
    pub events: bool,

    /// Use what can be read of a damaged snapshot
    #[arg(long)]
    pub salvage: bool,

    /// The largest snapshot that is read; larger ones are listed in bad_files
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub snapshot_limit: String,

    /// Files that are read at a time [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,

    /// Files of a batch at most
    #[arg(long, value_name = "N", default_value_t = 100_000, hide = true)]
    pub batch_files: usize,

    /// How the summary is written on stdout
    #[arg(long, value_enum, default_value_t = Summary::Text)]
    pub format: Summary,
}

/// How a summary is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Summary {
    /// For people
    Text,
    /// One JSON document
    Json,
}

/// What `oomph-fleet query` takes.
#[derive(Debug, Args)]
pub struct QueryArgs {
    /// SQL or the name of a usual question; then the dataset, a folder or s3://BUCKET/PREFIX
    #[arg(value_name = "QUERY DIR", num_args = 0..=2)]
    pub words: Vec<String>,

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// List the usual questions; with the name of one as QUERY, print its SQL
    #[arg(long)]
    pub list: bool,

    /// Print the tables, their columns and the functions
    #[arg(long)]
    pub schema: bool,

    /// Write a page that answers all the usual questions
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
}

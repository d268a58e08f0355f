//! `oomph diff` and `oomph check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use oomph_gpu::size::Size;

use super::reading::TrustArgs;
use super::{Format, PageArgs};
use crate::syntax::{Amount, Syntax, growth, size};

pub(super) const DIFF_HELP: &str = "\
Examples:
      oomph diff before.pickle after.pickle
      oomph diff --format json monday.pickle tuesday.pickle";

pub(super) const CHECK_HELP: &str = "\
Examples:
  In CI, so that nobody makes the peak grow unseen:
      oomph check snapshot.pickle --max-peak 20GiB
      oomph check snapshot.pickle --baseline good.pickle --max-growth 2%

  How much more does a change of the program need, on two cards? (memory.json is kept in the repository)
      mkdir -p out
      oomph dry-run --gpu rtx-3060 --report out/rtx-3060.json -- python train.py
      oomph dry-run --gpu l4 --report out/l4.json -- python train.py
      oomph check out/*.json --baseline memory.json --max-growth 5%
      oomph check out/*.json --write-baseline memory.json

Exit status:
  0    every limit holds
  1    one does not
  2    wrong usage, or a file cannot be read";

/// What `oomph diff` takes.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The earlier recording
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,

    /// The later recording
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,

    /// How damaged and compressed files are read.
    #[command(flatten)]
    pub trust: TrustArgs,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What `oomph check` takes.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A recording, or the reports of dry runs (--report), one per card
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The most that may be reserved at the peak
    #[arg(long, value_name = "SIZE", value_parser = Syntax(size))]
    pub max_peak: Option<Size>,

    /// The most that may be allocated at the peak
    #[arg(long, value_name = "SIZE", value_parser = Syntax(size))]
    pub max_allocated: Option<Size>,

    /// What to compare with: an earlier recording, or for reports a file of --write-baseline
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// Write the reports' figures to FILE, to keep in the repository and compare with later
    #[arg(long, value_name = "FILE")]
    pub write_baseline: Option<PathBuf>,

    /// The most by which the peak may have grown since the baseline, as a size or a percentage
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = Syntax(growth), requires = "baseline")]
    pub max_growth: Option<Amount>,

    /// Fail if memory grows with every step
    #[arg(long)]
    pub no_leak: bool,

    /// How damaged and compressed files are read.
    #[command(flatten)]
    pub trust: TrustArgs,

    /// Output format
    #[arg(long, value_enum, default_value_t = ReviewFormat::Text)]
    pub format: ReviewFormat,
}

/// How the answer of a check is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReviewFormat {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// For a job of GitHub Actions: text, annotations on lines, and a table appended to $GITHUB_STEP_SUMMARY
    Github,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// JUnit XML, one test case per card
    Junit,
}

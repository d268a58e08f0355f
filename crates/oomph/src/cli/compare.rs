//! `oomph diff` and `oomph check`.

use std::path::PathBuf;

use clap::Args;

use super::explain::TrustArgs;
use super::{Format, PageArgs};

pub(super) const DIFF_HELP: &str = "\
Examples:
      oomph diff before.pickle after.pickle
      oomph diff --format json monday.pickle tuesday.pickle";

pub(super) const CHECK_HELP: &str = "\
Examples:
  In CI, so that nobody makes the peak grow unseen:
      oomph check snapshot.pickle --max-peak 20GiB
      oomph check snapshot.pickle --baseline good.pickle --max-growth 2%

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

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What `oomph check` takes.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The most that may be reserved at the peak
    #[arg(long, value_name = "SIZE")]
    pub max_peak: Option<String>,

    /// The most that may be allocated at the peak
    #[arg(long, value_name = "SIZE")]
    pub max_allocated: Option<String>,

    /// An earlier recording, for --max-growth
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// The most by which the peak may have grown since the baseline, as a size or a percentage
    #[arg(long, value_name = "SIZE|PERCENT", requires = "baseline")]
    pub max_growth: Option<String>,

    /// Fail where memory grows with every step
    #[arg(long)]
    pub no_leak: bool,

    /// How damaged and compressed files are read.
    #[command(flatten)]
    pub trust: TrustArgs,

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

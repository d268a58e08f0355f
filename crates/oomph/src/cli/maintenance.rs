//! `oomph doctor`, `oomph cache` and `oomph mcp`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Format;
use crate::syntax::{Syntax, duration};

pub(super) const DOCTOR_HELP: &str = "\
Examples:
      oomph doctor
      oomph doctor --python .venv/bin/python
      oomph doctor --format json

Exit status:
  0    everything that dry-run, fix and tune need works
  1    something does not work; its line says what to do
  2    wrong usage";

pub(super) const CACHE_HELP: &str = "\
Examples:
      oomph cache list
      oomph cache clean --older-than 7d
      oomph cache clean --all

The cache is OOMPH_CACHE_DIR, or oomph in the user's cache folder. What a run
uses is never removed; the rest is rebuilt when it is needed.";

#[cfg(feature = "mcp")]
pub(super) const MCP_HELP: &str = "\
An agent starts it as a server on stdin and stdout, for example with:
      {\"mcpServers\": {\"oomph\": {\"command\": \"oomph\", \"args\": [\"mcp\"]}}}

The tools take what the commands take and may do what the commands may do, apart
from the options that write files or upload: those stay with you. Answers are in
the form of --brief.";

/// What `oomph doctor` takes.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The Python to look at [default: the one that `python` starts here]
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,

    /// Do not run a small program on the virtual GPU
    #[arg(long)]
    pub no_run: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What `oomph cache` takes.
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// The commands of `oomph cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Show what is in the cache: sizes, last use, packages
    List {
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Remove what has not been used for 30 days
    Clean(CleanArgs),
}

/// What `oomph cache clean` takes.
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// Remove what has not been used for this time (7d, 12h)
    #[arg(long, value_name = "DURATION", value_parser = Syntax(duration), default_value = "30d")]
    pub older_than: Duration,

    /// Remove everything that no current run uses
    #[arg(long, conflicts_with = "older_than")]
    pub all: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

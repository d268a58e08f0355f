//! `oomph collect` and `oomph query`, which `oomph-fleet` answers.

use std::ffi::OsString;

use clap::Args;

pub(super) const COLLECT_HELP: &str = "\
Examples:
  The logs and snapshots of a folder, into a dataset of Parquet files
      oomph collect /var/log/train --into fleet

  Which lines of programs run out of memory most often?
      oomph query top_lines fleet

The options are those of oomph-fleet, a separate program. If it is installed next
to oomph or on PATH, oomph collect --help prints them. To build it, in oomph's
repository:
      cargo install --locked --path crates/oomph-fleet";

pub(super) const QUERY_HELP: &str = "\
Examples:
  The ten built-in queries, and one of them
      oomph query --list
      oomph query top_lines fleet

  A query in SQL
      oomph query 'SELECT model, count(*) FROM failures GROUP BY model' fleet

The options are those of oomph-fleet, a separate program. If it is installed next
to oomph or on PATH, oomph query --help prints them. To build it, in oomph's
repository:
      cargo install --locked --path crates/oomph-fleet";

/// What `oomph-fleet` takes, as it was typed.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct FleetArgs {
    /// What oomph-fleet takes
    #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

//! `oomph collect` and `oomph query`: what is typed goes on to `oomph-fleet` as it is.

use std::ffi::OsString;

use clap::Args;

pub(super) const COLLECT_USAGE: &str = "oomph collect SOURCE... --into DIR";

pub(super) const COLLECT_HELP: &str = "\
Examples:
  The logs and snapshots of a folder, into a dataset; then ask it:
      oomph collect /var/log/train --into fleet
      oomph query top_lines fleet

All options:
      oomph collect --help";

pub(super) const QUERY_USAGE: &str = "oomph query QUERY DIR";

pub(super) const QUERY_HELP: &str = "\
Examples:
  Which lines of programs run out of memory most often?
      oomph query top_lines fleet

  The usual questions, and a page that answers them all:
      oomph query --list
      oomph query --html fleet.html fleet

All options:
      oomph query --help";

/// What `oomph collect` and `oomph query` take.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// What goes on to oomph-fleet
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

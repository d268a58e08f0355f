//! `oomph attach`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::Format;
use crate::syntax::{Syntax, duration};

pub(super) const HELP: &str = "\
Examples:
  What does a running program hold on the GPU, and whose is it?
      oomph attach 4711

  Who allocates it? Record 5 optimizer steps, with stacks, and stop recording
      oomph attach --record 5 4711

  Keep the snapshot, for oomph view and oomph diff
      oomph attach --record 5 --snapshot now.pickle 4711

  It runs out of memory once a day: leave it recording, and write a snapshot then
      oomph attach --dump-at-oom death.pickle 4711
      oomph explain death.pickle
      oomph attach --stop 4711

  All ranks of its job
      oomph attach --job --record 5 4711

  Is it possible here, and if not, which permission is missing?
      oomph attach --check 4711

The program need not be prepared. oomph attach uses the first of these that is
open:
  the hook's socket   programs under oomph run
  remote debugging    CPython 3.14 and later (PEP 768)
  ptrace              CPython 3.9 to 3.14 on x86-64; no debugger is needed
The script runs in the program's main thread, between two instructions. A
program that sleeps or waits runs it when it wakes up, or not at all once
--timeout is over.

Exit status:
  0    done
  2    wrong usage, or a process could not be attached to
  4    a process did not answer in time (--timeout)
  130  ended by Ctrl-C (143: by SIGTERM)";

/// What `oomph attach` takes.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The processes
    #[arg(value_name = "PID", required = true)]
    pub pids: Vec<u32>,

    /// All ranks of each process's job
    #[arg(long)]
    pub job: bool,

    /// Report which method would work and why, and change nothing
    #[arg(long, conflicts_with_all = ["record", "dump_at_oom", "stop", "snapshot"])]
    pub check: bool,

    /// Record this many optimizer steps with stacks, then stop recording
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..=10_000), conflicts_with_all = ["dump_at_oom", "stop"])]
    pub record: Option<u64>,

    /// Leave PyTorch recording, and have it write a snapshot to FILE when memory runs out
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stop", "snapshot"])]
    pub dump_at_oom: Option<PathBuf>,

    /// Stop what an earlier oomph attach left running
    #[arg(long, conflicts_with = "snapshot")]
    pub stop: bool,

    /// Keep the snapshot, for oomph explain, view and diff; further ranks go to FILE-rankN
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Number of events that a recording keeps per card, the last ones (about 2 KB of the program's memory each)
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    pub entries: u64,

    /// Give up after this time [default: 30s; with --record 5m]
    #[arg(long, value_name = "DURATION", value_parser = Syntax(duration))]
    pub timeout: Option<Duration>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

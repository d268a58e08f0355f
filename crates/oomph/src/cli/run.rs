//! `oomph run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use oomph_gpu::size::Size;

use super::at_least_one;
use crate::syntax::{Amount, NamedCards, Syntax, Typed, capacity, cards, duration, margin, typed};

pub(super) const HELP: &str = "\
Examples:
  A training run that restarts with a smaller micro-batch instead of dying
      oomph run -- python train.py

  First make sure that it fits what is free on the card now:
      oomph run --check -- python train.py

  See what a card of 8 GiB would make of it, at full speed:
      oomph run --vram 8GiB -- python train.py

  Rehearse the whole on a machine without a GPU (files are written):
      oomph run --rehearse rtx-3060 -- python train.py

When the program runs out of GPU memory, oomph looks for the cheapest change that
fits the card's free memory, runs it on the virtual GPU, and restarts the program
with it. The effective batch stays the same. A change that affects the result is
used only if --allow names it. The Trainers of transformers, TRL and Lightning
resume from their last complete checkpoint, and so does an Accelerate script that
takes --resume_from_checkpoint; other programs start over.
Other failures are never retried. No file of the program is changed. While it
runs, oomph warns once when memory grows with each step, with a forecast, and
when the allocator has to give its cache back in two steps in a row.

The journal, and a recording of each death, are in --keep (oomph-run/).

Exit status: the program's own, or
  2    wrong usage, or a required file or package is missing
  78   it ran out of GPU memory, and no remedy is left or --attempts is used up
  130  ended by Ctrl-C (143: by SIGTERM)";

/// What `oomph run` takes.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Check before the start whether it fits the card's free memory, however long that takes, and start with a fix if
    /// it does not [default: if the dry run takes less than 10 s]
    #[arg(long, conflicts_with = "no_check")]
    pub check: bool,

    /// Start without this check
    #[arg(long)]
    pub no_check: bool,

    /// Start the program at most this many times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub attempts: usize,

    /// Do not wait for the out-of-memory error: if memory grows or runs short, look for a remedy while the program runs,
    /// let its trainer save a checkpoint, and restart from there
    #[arg(long)]
    pub act: bool,

    /// Also use these remedies, which change the result: ids from `oomph fix --list`
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub allow: Vec<String>,

    /// Do not use these remedies
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub forbid: Vec<String>,

    /// Leave this much of the card free (512MiB, 10%)
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = Syntax(typed(margin)))]
    pub margin: Option<Typed<Amount>>,

    /// Search for a remedy for at most this long [default: for as many trials as `oomph fix`]
    #[arg(long, value_name = "DURATION", value_parser = Syntax(duration))]
    pub max_time: Option<Duration>,

    /// How much of the run to record, to explain an out-of-memory error
    #[arg(long, value_enum, default_value_t = Record::Light)]
    pub record: Record,

    /// Where the journal and the recordings are kept
    #[arg(long, value_name = "FOLDER", default_value = "oomph-run")]
    pub keep: PathBuf,

    /// Limit PyTorch to what a card of this size would give
    #[arg(long, value_name = "SIZE", value_parser = Syntax(typed(capacity)))]
    pub vram: Option<Typed<Size>>,

    /// Run on a virtual card as if it were this machine's: NAME or NAME:COUNT of `oomph gpus`. Its results are
    /// meaningless, but its writes are real
    #[arg(long, value_name = "NAME[:COUNT]", value_parser = Syntax(typed(cards)))]
    pub rehearse: Option<Typed<NamedCards>>,

    /// Only search, for a program that has made this many steps, and write the result (`--act` starts it this way)
    #[arg(long, value_name = "STEPS", requires = "rehearse", hide = true)]
    pub search_beside: Option<u64>,

    /// Run in an environment with this package (any pip requirement; repeatable)
    #[arg(long, value_name = "PKG")]
    pub with: Vec<String>,

    /// The program and its arguments, after `--`
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// How closely a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Record {
    /// Not at all
    Off,
    /// PyTorch's history of its allocator: the last 100,000 events with their stacks (about 4 ms of host time per
    /// step of GPT-2 with 12 layers)
    Light,
    /// That, and the owner of each block (about 22 ms there)
    Full,
}

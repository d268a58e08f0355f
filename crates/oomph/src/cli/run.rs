//! `oomph run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::at_least_one;

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

When the program dies of GPU memory, oomph looks for the cheapest change that
fits what is free on the card, tries it on the virtual GPU, and starts the
program again with it. The effective batch stays the same. What changes the
result is used only where --allow names it. A Trainer of transformers (or TRL)
and Lightning's resume from their own last complete checkpoint, a script of
Accelerate where it takes --resume_from_checkpoint; other programs start over.
Other failures are never retried. No file of the program is changed. While it
runs, oomph warns once when memory grows with each step, with a forecast, and
when the allocator has to give its cache back in two steps in a row.

The journal, and a recording of each death, are in --keep (oomph-run/).

Exit status: the program's own, or
  2    wrong usage, or something that is needed is missing
  78   it died of GPU memory with a remedy too, and no other is left, or
       --attempts is used up
  130  ended by Ctrl-C (143: by SIGTERM)";

/// What `oomph run` takes.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// See before the start whether it fits what is free on the card, however long that takes, and start with a fix
    /// where it does not [default: if the dry run takes less than 10 s]
    #[arg(long, conflicts_with = "no_check")]
    pub check: bool,

    /// Start at once
    #[arg(long)]
    pub no_check: bool,

    /// Start the program this often at most
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one())]
    pub attempts: usize,

    /// Do not wait for the death: where memory grows or runs short, look for a remedy while the program runs, let its
    /// trainer save a checkpoint, and start it again from there
    #[arg(long)]
    pub act: bool,

    /// Use these remedies too, though they change the result: ids of `oomph fix --list`
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub allow: Vec<String>,

    /// Do not use these remedies
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub forbid: Vec<String>,

    /// Leave this much of the card free (512MiB, 10%)
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub margin: Option<String>,

    /// Search for a remedy this long at most [default: 60s, or four dry runs of a program that takes longer]
    #[arg(long, value_name = "DURATION")]
    pub max_time: Option<String>,

    /// How closely the run is recorded, for the explanation of a death
    #[arg(long, value_enum, default_value_t = Record::Light)]
    pub record: Record,

    /// Where the journal and the recordings are kept
    #[arg(long, value_name = "FOLDER", default_value = "oomph-run")]
    pub keep: PathBuf,

    /// Let PyTorch take no more of each card than one of this size would give
    #[arg(long, value_name = "SIZE")]
    pub vram: Option<String>,

    /// Run on a virtual card as if it were this machine's: NAME or NAME:COUNT of `oomph gpus`. What it computes means
    /// nothing, what it writes is written
    #[arg(long, value_name = "NAME[:COUNT]")]
    pub rehearse: Option<String>,

    /// Only search, for a program that has made so many steps, and write what was found (`--act` starts it so)
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
    /// PyTorch's history of its allocator: the last 100,000 events with their stacks (about 4 ms of the host's time in
    /// a step of GPT-2 with 12 layers)
    Light,
    /// That, and whose each block is (about 22 ms there)
    Full,
}

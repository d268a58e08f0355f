//! `oomph tune`.

use std::path::PathBuf;

use clap::Args;

use super::{FormatArgs, PageArgs, ProgramArgs, at_least_one};
use crate::syntax::{Amount, Keep, Syntax, Vary, keep, margin, variable, vary};

pub(super) const HELP: &str = "\
Examples:
  The largest batch that fits:
      oomph tune --gpu rtx-3060 --vary batch=1..512 -- python train.py --batch-size {batch}

  Powers of two only, with 1 GiB to spare:
      oomph tune --gpu l4 --vary batch=1..4096 --powers --margin 1GiB -- python train.py --batch-size {batch}

  The largest batch for each length (the last knob varies inside the others):
      oomph tune --gpu h100 --vary seq=1024,2048,4096 --vary batch=1..64 -- python train.py --seq {seq} --batch {batch}

  The batch of a step split into accumulated parts, 64 in all:
      oomph tune --gpu rtx-3060 --vary batch=1..64 --keep batch*accum=64 -- \\
          python train.py --batch-size {batch} --accumulate {accum}

The largest value that fits and the first that fails were both run on the virtual
GPU. The recommended value still fits if the peak on a real card is at the upper
end of its interval.

Exit status:
  0    a value fits
  1    not even the smallest fits
  2    wrong usage, or a required file or package is missing or unreadable
  3    the program failed for another reason
  130  ended by Ctrl-C (143: by SIGTERM)";

/// What `oomph tune` takes.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// The program and its cards.
    #[command(flatten)]
    pub program: ProgramArgs,

    /// What to vary: {NAME} in the command stands for a value of LOW..HIGH or of a list A,B,C. With several, the last
    /// varies inside the earlier ones
    #[arg(long, value_name = "NAME=LOW..HIGH", value_parser = Syntax(vary), required = true)]
    pub vary: Vec<Vary>,

    /// Set a variable of the program's environment; {NAME} stands for the value here too (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = Syntax(variable))]
    pub env: Vec<(String, String)>,

    /// Try only every Nth value of a range
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "powers")]
    pub step: u64,

    /// Try only powers of two
    #[arg(long)]
    pub powers: bool,

    /// Keep a product constant: {B} stands for N divided by the value of A, and only divisors of N are tried
    #[arg(long, value_name = "A*B=N", value_parser = Syntax(keep))]
    pub keep: Option<Keep>,

    /// Leave this much free at the recommended value, on top of the peak's uncertainty (512MiB, 10%)
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = Syntax(margin))]
    pub margin: Option<Amount>,

    /// Number of trials to run at a time, if the program allows it [default: one per core]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub jobs: Option<usize>,

    /// Count a program that runs out of memory, catches the error and goes on with less as fitting
    #[arg(long)]
    pub accept_recovered: bool,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// How the answer is written.
    #[command(flatten)]
    pub format: FormatArgs,

    /// Also write the answer to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

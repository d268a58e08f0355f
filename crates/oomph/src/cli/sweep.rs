//! `oomph sweep`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{PageArgs, at_least_one};

pub(super) const HELP: &str = "\
Examples:
  FILE.yaml says what is varied; {NAME} stands for a value:
      program: python train.py --batch-size {batch} --seq-len {length}
      matrix:
        gpu: [t4, rtx-3060, rtx-4090, a100-40gb, h100-80gb]
        batch: [1, 2, 4, 8, 16]
        length: [512, 1024]
      env: {PYTORCH_ALLOC_CONF: \"expandable_segments:True\"}
      exclude: [{gpu: t4, batch: 16}]

  Run it on all cores; what is known is not run again:
      oomph sweep sweep.yaml

  The largest batch for each card, and a picture:
      oomph sweep sweep.yaml --by batch --picture sweep.svg

  As a job array of Slurm, at most 20 at a time, then the table:
      oomph sweep sweep.yaml --write slurm jobs --parallel 20
      sbatch jobs/sweep.sbatch
      oomph sweep sweep.yaml --collect

  As an indexed Job of Kubernetes, or as tasks of Ray:
      oomph sweep sweep.yaml --write kubernetes jobs --image ghcr.io/me/train:1 --claim work
      oomph sweep sweep.yaml --write ray jobs

Other keys of the file are options of `oomph dry-run`: vram, with, steps, until-exit,
budget, timeout, values, routing, batches, random-weights, ranks, network. `commits:
[main, HEAD~5]` is an axis of git commits. The program runs in the folder of the file,
each cell as `oomph dry-run --no-probe --no-owners` would run it. Answers are kept in
FILE.sweep and nothing else is written; an answer is known as long as the files that the
run read, its command and its environment are the same.

Every cell is run: a peak on one card is not taken for that on another, because kernels
and workspaces differ. --skip-larger AXIS leaves out what is larger than a cell that ran
out of memory.

Exit status:
  0    every cell has an answer, whether it fits or not
  2    wrong usage, or something that is needed is missing or cannot be read
  3    every cell has an answer, but at some the program failed for another reason than memory
  4    some cells have no answer yet (--collect)
  130  ended by Ctrl-C, with the table as far as it came (143: by SIGTERM)";

/// What `oomph sweep` takes.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// What is run and varied, as YAML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Run every cell anew, also those that are known
    #[arg(long, conflicts_with = "collect")]
    pub fresh: bool,

    /// Run nothing: show what is known
    #[arg(long)]
    pub collect: bool,

    /// Run this many at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub jobs: Option<usize>,

    /// Do not run what is larger on this axis than a cell that ran out of memory; the table says "not run"
    #[arg(long, value_name = "AXIS")]
    pub skip_larger: Option<String>,

    /// Show the largest value of this axis that fits, for each card and each combination of the others
    #[arg(long, value_name = "AXIS")]
    pub by: Option<String>,

    /// Draw the peaks to FILE as SVG: a panel per card, against the longest axis of numbers
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<PathBuf>,

    /// Draw against this axis
    #[arg(long, value_name = "AXIS", requires = "picture")]
    pub against: Option<String>,

    /// Write a job that runs the cells to DIR instead of running them
    #[arg(long, value_names = ["slurm|kubernetes|ray", "DIR"], num_args = 2)]
    #[arg(conflicts_with_all = ["fresh", "collect", "cell"])]
    pub write: Option<Vec<String>>,

    /// How many tasks of the job run at a time
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "write")]
    pub parallel: Option<usize>,

    /// How many cells a task runs, which share their imports [default: 8, or fewer where there are few]
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "write")]
    pub per_task: Option<usize>,

    /// The image of the containers, with oomph and the program's Python in it (kubernetes)
    #[arg(long, value_name = "IMAGE", requires = "write")]
    pub image: Option<String>,

    /// The claim of the volume that holds the file's folder (kubernetes)
    #[arg(long, value_name = "NAME", requires = "write")]
    pub claim: Option<String>,

    /// Run these cells only, by number or as FIRST-LAST, and leave their answers for a later `oomph sweep`; what is known
    /// is not run. This is what the tasks of a job do
    #[arg(long, value_name = "CELLS", conflicts_with = "collect")]
    pub cell: Option<String>,

    /// The matrix that the numbers of --cell are of
    #[arg(long, value_name = "NAME", requires = "cell", hide = true)]
    pub matrix: Option<String>,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// How the answer is written on stdout
    #[arg(long, value_enum, default_value_t = SweepFormat::Text)]
    pub format: SweepFormat,

    /// Write the answer to FILE as well, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// How the answer of a sweep is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SweepFormat {
    /// A table for people
    Text,
    /// One JSON document
    Json,
    /// A line per cell, for spreadsheets
    Csv,
}

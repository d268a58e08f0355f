//! `oomph sweep`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use oomph_report::clean;

use super::{PageArgs, at_least_one};
use crate::failure::{Hinted, nearest};
use crate::syntax::{Syntax, Together, Validated, cells};

pub(super) const HELP: &str = "\
Examples:
  sweep.yaml lists the axes; {NAME} stands for a value:
      program: python train.py --batch-size {batch} --seq-len {length}
      matrix:
        gpu: [t4, rtx-3060, rtx-4090, a100-40gb, h100-80gb]
        batch: [1, 2, 4, 8, 16]
        length: [512, 1024]
      env: {PYTORCH_ALLOC_CONF: \"expandable_segments:True\"}
      exclude: [{gpu: t4, batch: 16}]

  Run it on all cores; cells with an answer are not run again:
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
FILE.sweep and nothing else is written. An answer holds as long as the files that the run
read, its command and its environment are unchanged.

Every cell is run: the peak on one card does not predict the peak on another, because
kernels and workspaces differ. --skip-larger AXIS skips cells that are larger than one that
ran out of memory.

Exit status:
  0    every cell has an answer, whether it fits or not
  2    wrong usage, or a required file or package is missing or unreadable
  3    every cell has an answer, but in some the program failed for a reason other than memory
  4    some cells have no answer yet (--collect)
  130  ended by Ctrl-C, with a partial table (143: by SIGTERM)";

/// What `--write` may name.
const SCHEDULERS: [&str; 3] = ["slurm", "kubernetes", "ray"];

/// What `oomph sweep` takes.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The program and the axes, as YAML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Run every cell again, even those with an answer
    #[arg(long, conflicts_with = "collect")]
    pub fresh: bool,

    /// Run nothing; show the answers so far
    #[arg(long)]
    pub collect: bool,

    /// Number of cells to run at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub jobs: Option<usize>,

    /// Skip cells that are larger on this axis than one that ran out of memory; the table says "not run"
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

    /// The job that is written.
    #[command(flatten)]
    pub job: Validated<TypedJob>,

    /// Run only these cells, by number or as FIRST-LAST, and leave their answers for a later `oomph sweep`; cells with an
    /// answer are skipped. The tasks of a job use this
    #[arg(long, value_name = "CELLS", value_parser = Syntax(cells), conflicts_with = "collect")]
    pub cell: Option<RangeInclusive<usize>>,

    /// The matrix that the numbers of --cell are of
    #[arg(long, value_name = "NAME", requires = "cell", hide = true)]
    pub matrix: Option<String>,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// Output format on stdout
    #[arg(long, value_enum, default_value_t = SweepFormat::Text)]
    pub format: SweepFormat,

    /// Also write the answer to FILE, as JSON
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
    /// One line per cell, for spreadsheets
    Csv,
}

/// `--write` and what goes with it, as it was typed.
#[derive(Debug, Args)]
pub struct TypedJob {
    /// Write a job that runs the cells to DIR instead of running them
    #[arg(long, value_names = ["slurm|kubernetes|ray", "DIR"], num_args = 2)]
    #[arg(conflicts_with_all = ["fresh", "collect", "cell"])]
    write: Option<Vec<String>>,

    /// Number of tasks of the job that run at a time
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "write")]
    parallel: Option<usize>,

    /// Number of cells per task; they share their imports [default: 8, or fewer if there are few]
    #[arg(long, value_name = "N", value_parser = at_least_one(), requires = "write")]
    per_task: Option<usize>,

    /// The image of the containers, with oomph and the program's Python in it (kubernetes)
    #[arg(long, value_name = "IMAGE", requires = "write")]
    image: Option<String>,

    /// The claim of the volume that holds the file's folder (kubernetes)
    #[arg(long, value_name = "NAME", requires = "write")]
    claim: Option<String>,
}

/// A job that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOptions {
    /// What runs it.
    pub scheduler: Scheduler,
    /// The folder that it is written to.
    pub folder: PathBuf,
    /// How many tasks run at a time; `None` where nobody says.
    pub parallel: Option<usize>,
    /// How many cells a task runs; `None` where nobody says.
    pub per_task: Option<usize>,
}

/// What runs a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Slurm, as a job array.
    Slurm,
    /// Kubernetes, as an indexed Job.
    Kubernetes {
        /// The image of its containers.
        image: String,
        /// The claim of the volume with the file's folder.
        claim: String,
    },
    /// Ray, as tasks.
    Ray,
}

impl Together for TypedJob {
    type Value = Option<JobOptions>;

    fn read(self) -> Result<Option<JobOptions>, Hinted> {
        let Some([kind, folder]) = self.write.as_deref() else { return Ok(None) };
        let scheduler = match (kind.as_str(), self.image, self.claim) {
            ("kubernetes", Some(image), Some(claim)) => Scheduler::Kubernetes { image, claim },
            ("kubernetes", image, _) => {
                let lacks = if image.is_none() { "--image" } else { "--claim" };
                return Err(Hinted::new(
                    format!("a job of Kubernetes needs {lacks}"),
                    "--image names a container with oomph and the program's Python, --claim the volume of the file's folder",
                ));
            }
            ("slurm", None, None) => Scheduler::Slurm,
            ("ray", None, None) => Scheduler::Ray,
            ("slurm" | "ray", image, _) => {
                let option = if image.is_some() { "--image" } else { "--claim" };
                return Err(Hinted::new(format!("{option} is for jobs of Kubernetes"), "leave it out"));
            }
            _ => {
                let hint = nearest(kind, SCHEDULERS.into_iter(), "it is one of slurm, kubernetes and ray");
                return Err(Hinted::new(format!("--write: there is no kind of job `{}`", clean(kind)), hint));
            }
        };
        Ok(Some(JobOptions { scheduler, folder: folder.into(), parallel: self.parallel, per_task: self.per_task }))
    }
}

//! `oomph dry-run`.

use std::path::PathBuf;

use clap::Args;

use super::{FormatArgs, PageArgs, ProgramArgs};

pub(super) const HELP: &str = "\
Examples:
  On one card:
      oomph dry-run --gpu rtx-3060 -- python train.py --batch-size 16

  In an environment made for it (kept in the cache and reused):
      oomph dry-run --gpu rtx-3060 --with torch --with transformers -- python train.py

  On eight cards, as torchrun would use them:
      oomph dry-run --gpu h100:8 -- torchrun --nproc-per-node 8 train.py

  On any card with 8 GiB:
      oomph dry-run --vram 8GiB -- python generate.py

  Without a limit: the peak, and the cards it fits on:
      oomph dry-run -- python generate.py

  A server: send it a request, then end it with Ctrl-C:
      oomph dry-run --gpu rtx-4090 -- llama-server -m model.gguf

  For a script:
      oomph dry-run --gpu l4 --format json -- python train.py > answer.json

The program runs unmodified. Its kernels compute nothing, so the files that it
writes go to a temporary folder, and oomph answers what Python's HTTP clients
would send; --allow-writes lets both through. Other programs (curl, git push)
can send unless --network none is given. Sizes are written 8GiB, 8G, 7.5GB or
512MiB, durations 90s, 10m or 1h30m.

The need is the size of the smallest card that holds the program. A replay
predicts it; runs on a card of that size and on one 1 % smaller confirm it.
--no-probe skips these runs.

Exit status:
  0    it fits
  1    it does not fit, or it ran out of memory, caught the error and went on
  2    wrong usage, a required file or package is missing or unreadable, or oomph could not run it
  3    the program failed for another reason, ran on the CPU instead, or met a fault of oomph's own
  130  ended by Ctrl-C, and 143 by SIGTERM, with what was seen until then";

/// What `oomph dry-run` takes.
#[derive(Debug, Args)]
pub struct DryRunArgs {
    /// The program and its cards.
    #[command(flatten)]
    pub program: ProgramArgs,

    /// Skip the extra runs that find the smallest card for the program
    #[arg(long)]
    pub no_probe: bool,

    /// Write the program's memory over time to FILE, for `oomph explain`: a snapshot that PyTorch's own viewer also
    /// opens, or the virtual GPU's log for a program without PyTorch; one file per process
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Write the program's memory over time to FILE for other tools: .parquet, .json (Perfetto), .speedscope.json or a
    /// folder for TensorBoard
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Do not record the owners of the memory
    #[arg(long, conflicts_with_all = ["snapshot", "trace"])]
    pub no_owners: bool,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// How the answer is written.
    #[command(flatten)]
    pub format: FormatArgs,

    /// Report on stderr what kept the program's writes away from your files, and how much it wrote
    #[arg(long)]
    pub verbose: bool,

    /// Also write the answer to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

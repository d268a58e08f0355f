//! `oomph explain`.

use std::path::PathBuf;

use clap::Args;

use super::{FormatArgs, PageArgs, ReadingArgs};

pub(super) const HELP: &str = "\
Examples:
  Why did this run die?
      oomph explain train.log
      python train.py 2>&1 | oomph explain -

  Who held the memory, and would another setting or card get past the failure?
  (from torch.cuda.memory._dump_snapshot, of any PyTorch from 2.0 on)
      oomph explain snapshot.pickle
      oomph explain --gpu rtx-4090 snapshot.pickle

  Not at the peak, but at the end, or at a time in microseconds:
      oomph explain --at end snapshot.pickle

  Which of several ranks is the worst, and why?
      oomph explain rank*.pickle

  The recording for other tools (by the name's ending):
      oomph explain snapshot.pickle --export memory.parquet
      oomph explain snapshot.pickle --export trace.json

  As a page for the browser (oomph view opens it):
      oomph explain snapshot.pickle --html report.html

  Wait for the failure of a run that goes on:
      oomph explain --follow train.log

The type of a file is detected from its content: a log; a snapshot (pickle, also
gzip or zstd); a profiler trace with memory events; an exported memory
timeline.

Exit status:
  0    no GPU out-of-memory error was found
  1    one was found
  2    wrong usage, or a file cannot be read";

/// What `oomph explain` takes.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Logs, snapshots, traces; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// How recordings are read.
    #[command(flatten)]
    pub reading: ReadingArgs,

    /// Keep reading a log that is still being written, and answer at each failure
    #[arg(long)]
    pub follow: bool,

    /// Write the recording for other tools: .parquet, .json (Perfetto), .speedscope.json, .pickle (PyTorch's viewer), or a
    /// folder for TensorBoard
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,

    /// The answer as a page.
    #[command(flatten)]
    pub page: PageArgs,

    /// How the answer is written.
    #[command(flatten)]
    pub format: FormatArgs,
}

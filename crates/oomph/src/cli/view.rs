//! `oomph view`.

use std::path::PathBuf;

use clap::Args;

use super::ReadingArgs;

pub(super) const HELP: &str = "\
Examples:
  Look at a recording in the browser:
      oomph view snapshot.pickle

  With the card that it ran on, and as a file to keep or to send:
      oomph view --gpu rtx-4090 snapshot.pickle --output report.html
      oomph view snapshot.pickle --private --output report.html

  Several ranks, or two runs side by side:
      oomph view rank*.pickle
      oomph view before.pickle after.pickle

The page is one file. It needs no network and makes no request. The command takes
the same files as `oomph explain`: snapshots, profiler traces, exported
timelines, logs of the virtual GPU.

Exit status:
  0    the page is written
  2    wrong usage, or a file cannot be read or written";

/// What `oomph view` takes.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Recordings
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// How recordings are read.
    #[command(flatten)]
    pub reading: ReadingArgs,

    /// Write the page to FILE and do not open the browser
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Leave folders and lines of source out of the page
    #[arg(long)]
    pub private: bool,
}

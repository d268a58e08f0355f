//! `oomph calibrate`.

use std::path::PathBuf;

use clap::Args;

use super::Format;

pub(super) const HELP: &str = "\
Examples:
  Does this machine's card have the figures that dry runs of it assume?
      oomph calibrate

  The same, with a file to send to the catalogue:
      oomph calibrate --share rtx-4090.toml

  With an environment of its own, where this Python has no PyTorch:
      oomph calibrate --with torch

  Dry runs with the catalogue's figures again:
      oomph calibrate --forget

A dozen small PyTorch programs run on the card and then on its virtual twin: about
a minute. oomph compares the total that CUDA reports, the driver's pages, access
between cards, PyTorch's peaks and workspaces, and what a process holds outside
PyTorch (context, modules, handles). Where the total or the last differs, dry runs
of this card on this machine use what was measured from then on; their reports
say so. The card should be idle.

Exit status:
  0    done, whether or not something differs
  2    wrong usage, or something that is needed is missing
  3    the programs could not run";

/// What `oomph calibrate` takes.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Write all readings to this file, to be sent to the catalogue
    #[arg(long, value_name = "FILE")]
    pub share: Option<PathBuf>,

    /// Forget what was measured here
    #[arg(long, conflicts_with_all = ["share", "rehearse", "with"])]
    pub forget: bool,

    /// Run in an environment with this package (any pip requirement; repeatable)
    #[arg(long, value_name = "PKG")]
    pub with: Vec<String>,

    /// Let a virtual card stand in for the real one: NAME of `oomph gpus`. Nothing is kept
    #[arg(long, value_name = "NAME")]
    pub rehearse: Option<String>,

    /// Keep what a rehearsal finds, too
    #[arg(long, requires = "rehearse")]
    pub keep: bool,

    /// Let the card that stands in have a context that is so much larger than the catalogue's, to see it found
    #[arg(long, value_name = "SIZE", requires = "rehearse", hide = true)]
    pub rehearse_context: Option<String>,

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

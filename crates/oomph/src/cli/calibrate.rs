//! `oomph calibrate`.

use std::path::PathBuf;

use clap::Args;
use oomph_gpu::Gpu;
use oomph_gpu::size::Size;

use super::Format;
use crate::syntax::{Syntax, capacity, gpu};

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
  2    wrong usage, or a required file or package is missing
  3    the programs could not run";

/// What `oomph calibrate` takes.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Write all readings to this file, to contribute to the catalogue
    #[arg(long, value_name = "FILE")]
    pub share: Option<PathBuf>,

    /// Discard this machine's measurements
    #[arg(long, conflicts_with_all = ["share", "rehearse", "with"])]
    pub forget: bool,

    /// Run in an environment with this package (any pip requirement; repeatable)
    #[arg(long, value_name = "PKG")]
    pub with: Vec<String>,

    /// Use a virtual card instead of the real one: NAME of `oomph gpus`. Nothing is kept
    #[arg(long, value_name = "NAME", value_parser = Syntax(gpu))]
    pub rehearse: Option<&'static Gpu>,

    /// Also keep what a rehearsal finds
    #[arg(long, requires = "rehearse")]
    pub keep: bool,

    /// Make the virtual card's context larger than the catalogue's by this much, to see the difference found
    #[arg(long, value_name = "SIZE", value_parser = Syntax(capacity), requires = "rehearse", hide = true)]
    pub rehearse_context: Option<Size>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

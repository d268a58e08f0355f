//! The options that several commands share to read recordings.

use std::path::PathBuf;

use clap::Args;
use oomph_explain::snapshot::At;
use oomph_gpu::Gpu;
use oomph_gpu::size::Size;
use oomph_trace::ReadOptions;

use crate::syntax::{Syntax, capacity, gpu, moment};

/// How a recording is read; `explain` and `view` share these.
#[derive(Debug, Args)]
pub struct ReadingArgs {
    /// The moment: peak, oom, end, or a time in microseconds on the recording's clock [default: oom if there is one,
    /// else peak]
    #[arg(long, value_name = "MOMENT", value_parser = Syntax(moment))]
    pub at: Option<At>,

    /// The card that it ran on, or is to run on
    #[arg(long, value_name = "NAME", value_parser = Syntax(gpu))]
    pub gpu: Option<&'static Gpu>,

    /// The card's memory, instead of its own
    #[arg(long, value_name = "SIZE", value_parser = Syntax(capacity))]
    pub vram: Option<Size>,

    /// The block names from a dry run [default: FILE.names.json next to FILE.pickle, where --snapshot puts it]
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,

    /// Leave out what other settings and cards would have done
    #[arg(long)]
    pub no_what_if: bool,

    /// How damaged and compressed files are read.
    #[command(flatten)]
    pub trust: TrustArgs,
}

impl ReadingArgs {
    /// How files are read.
    pub fn options(&self) -> ReadOptions {
        self.trust.options()
    }
}

/// How far untrusted files are read; every command that reads recordings takes these.
#[derive(Clone, Copy, Debug, Args)]
pub struct TrustArgs {
    /// Use the readable part of a damaged file
    #[arg(long)]
    pub salvage: bool,

    /// Unpack a compressed file that grows to more than 200 times its size (and 256 MiB)
    #[arg(long)]
    pub no_limit: bool,
}

impl TrustArgs {
    /// How files are read.
    pub fn options(self) -> ReadOptions {
        ReadOptions { salvage: self.salvage, any_growth: self.no_limit, ..ReadOptions::default() }
    }
}

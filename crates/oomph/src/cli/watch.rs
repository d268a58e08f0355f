//! `oomph watch`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::Format;
use crate::syntax::{Condition, Syntax, condition, duration, interval, loopback};

pub(super) const HELP: &str = "\
Examples:
  Who holds the memory of this machine's cards?
      oomph watch --once

  Wait until a card has room, then start:
      oomph watch --until 'free>20GiB' && python train.py

  The same on the card that has it:
      CUDA_VISIBLE_DEVICES=$(oomph watch --until 'free>20GiB') python train.py

  Does it leak, and when is the card full? (in another terminal)
      oomph run -- python train.py
      oomph watch

  One line whenever a card has less than 2 GiB left, or enough again:
      oomph watch --alert 'free<2GiB' >> cards.log

  Curves of memory over the steps of training, for TensorBoard:
      oomph watch --tensorboard runs/memory
      tensorboard --logdir runs

  For Prometheus, on this machine only:
      oomph watch --metrics 127.0.0.1:9400

In a terminal watch draws bars, curves and a table. Keys: q or Esc ends, Up and
Down or Tab select a process, ? shows them all. With TERM=dumb, or when stdout is
not a terminal, it writes a line when something changes.

NVML reports the memory of cards and processes. Programs under `oomph run` report
what PyTorch has allocated and reserved. If a figure is not available, watch
prints the reason.

The forecast (\"full in about 40 minutes, step 2,310\") extrapolates what is
allocated at the ends of steps. If that does not grow in a straight line, watch
calls it fluctuating and gives no date.

Exit status:
  0    done, or ended by q; with --until: a card satisfies it
  2    wrong usage, or this machine has no card to watch
  4    --until: the time is over (--timeout)
  130  ended by Ctrl-C (143: by SIGTERM)";

/// What `oomph watch` takes.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Print the current use of the cards, and exit
    #[arg(long, conflicts_with_all = ["until", "alert", "metrics", "tensorboard", "timeout"])]
    pub once: bool,

    /// Wait until a card satisfies this twice in a row: free>SIZE, used<SIZE, free>20%. Prints the card's identifier
    #[arg(long, value_name = "CONDITION", value_parser = Syntax(condition))]
    #[arg(conflicts_with_all = ["alert", "metrics", "tensorboard"])]
    pub until: Option<Condition>,

    /// Watch this card only: its number in `oomph watch --once`
    #[arg(long, value_name = "INDEX")]
    pub gpu: Option<usize>,

    /// Time between two readings (at least 250ms; processes are listed at most once a second)
    #[arg(long, value_name = "DURATION", value_parser = Syntax(interval), default_value = "1s")]
    pub interval: Duration,

    /// Stop after this time (90s, 10m, 1h30m)
    #[arg(long, value_name = "DURATION", value_parser = Syntax(duration))]
    pub timeout: Option<Duration>,

    /// Print a line when a card starts or stops satisfying this (repeatable) [default: free<10%]
    #[arg(long, value_name = "CONDITION", value_parser = Syntax(condition))]
    pub alert: Vec<Condition>,

    /// Serve the figures as OpenMetrics at this loopback address
    #[arg(long, value_name = "ADDRESS", value_parser = Syntax(loopback))]
    pub metrics: Option<SocketAddr>,

    /// Write TensorBoard's event files to this folder: used memory of each card over time, and allocated, reserved and peak
    /// memory of each process over its steps
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,

    /// Output format; json writes one document per line, except with --once and --until
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

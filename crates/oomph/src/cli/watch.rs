//! `oomph watch`.

use clap::Args;

use super::Format;

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

  For Prometheus, on this machine only:
      oomph watch --metrics 127.0.0.1:9400

What the driver says of each card and process comes from NVML. What PyTorch has
allocated and reserved comes from programs that `oomph run` started. Where a
figure is not to be had, its reason stands there.

A date (\"full in about 40 minutes, step 2,310\") is drawn from what is allocated
at the ends of steps, and only where that grows in a line; it is called
fluctuating where it does not.

Exit status:
  0    done; with --until: a card satisfies it
  2    wrong usage, or this machine has no card to watch
  4    --until: the time is over (--timeout)
  130  ended by Ctrl-C (143: by SIGTERM)";

/// What `oomph watch` takes.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Look once
    #[arg(long, conflicts_with_all = ["until", "alert", "metrics", "timeout"])]
    pub once: bool,

    /// Wait until a card satisfies this in two looks: free>SIZE, used<SIZE, free>20%. Its identifier is written on stdout
    #[arg(long, value_name = "CONDITION", conflicts_with_all = ["alert", "metrics"])]
    pub until: Option<String>,

    /// Watch this card only: its number in `oomph watch --once`
    #[arg(long, value_name = "INDEX")]
    pub gpu: Option<usize>,

    /// Look so often (at least 250ms; processes are listed at most once a second)
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub interval: String,

    /// Stop after this time (90s, 10m, 1h30m)
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,

    /// Say when a card begins or ceases to satisfy this (repeatable) [default: free<10%]
    #[arg(long, value_name = "CONDITION")]
    pub alert: Vec<String>,

    /// Serve the figures as OpenMetrics at this address of this machine
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,

    /// How the answer is written; json without --once or --until is one document a line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

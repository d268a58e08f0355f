//! The arguments that `dry-run`, `fix` and `tune` share: a program, and the cards it runs on.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::TypedValueParser as _;
use clap::{Args, ValueEnum};
use oomph_gpu::size::Size;

use crate::syntax::{NamedCards, Ranks, Syntax, Typed, capacity, cards, duration, ranks, steps, typed};

/// A program and how it is to be run.
#[derive(Clone, Debug, Args)]
pub struct ProgramArgs {
    /// The cards: NAME, NAME:COUNT, or a comma-separated list (see `oomph gpus`) [default: this machine's NVIDIA
    /// cards, or a card without a limit if it has none]
    #[arg(long, value_name = "NAME[:COUNT]", value_parser = Syntax(typed(cards)), value_delimiter = ',')]
    pub gpu: Vec<Typed<NamedCards>>,

    /// Give each card this much memory instead of its own
    #[arg(long, value_name = "SIZE", value_parser = Syntax(typed(capacity)))]
    pub vram: Option<Typed<Size>>,

    /// Run in an environment with this package (any pip requirement; repeatable)
    #[arg(long, value_name = "PKG")]
    pub with: Vec<String>,

    /// Stop after N optimizer steps [default: run to the end, with loops shortened once their memory has settled]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).try_map(steps), conflicts_with = "until_exit")]
    pub steps: Option<u32>,

    /// Run the program to its end, with every iteration of its loops
    #[arg(long)]
    pub until_exit: bool,

    /// How long to run a loop that cannot be shortened after its peak has settled, and how long to follow memory that
    /// grows (90s, 10m) [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = Syntax(duration), conflicts_with_all = ["until_exit", "steps"])]
    pub budget: Option<Duration>,

    /// Stop after this time (90s, 10m, 1h30m)
    #[arg(long, value_name = "DURATION", value_parser = Syntax(duration))]
    pub timeout: Option<Duration>,

    /// Which results to compute for real, on the CPU, so that the program can read them back
    #[arg(long, value_enum, default_value_t = Values::Small)]
    pub values: Values,

    /// Which experts of a mixture get the tokens if the router's choice is not computed
    #[arg(long, value_enum, default_value_t = Routing::Balanced)]
    pub routing: Routing,

    /// Which batches to run if their sizes differ
    #[arg(long, value_enum, default_value_t = Batches::Longest)]
    pub batches: Batches,

    /// If a pretrained model's weights are not on disk, build it from its config
    #[arg(long)]
    pub random_weights: bool,

    /// Run only these ranks of a distributed job: a comma-separated list of numbers, ranges and `last`, or `all`; oomph
    /// answers for the others [default: 0,1,last of more than 4]
    #[arg(long, value_name = "RANKS", value_parser = Syntax(ranks))]
    pub ranks: Option<Ranks>,

    /// Let the program write and upload, even though its results are meaningless
    #[arg(long)]
    pub allow_writes: bool,

    /// What the program may do on the network [default: read; with --allow-writes: all]
    #[arg(long, value_enum)]
    pub network: Option<Network>,

    /// The program and its arguments, after `--`
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl ProgramArgs {
    /// A program without any option.
    pub fn of(command: Vec<OsString>) -> Self {
        Self {
            gpu: Vec::new(),
            vram: None,
            with: Vec::new(),
            steps: None,
            until_exit: false,
            budget: None,
            timeout: None,
            values: Values::Small,
            routing: Routing::Balanced,
            batches: Batches::Longest,
            random_weights: false,
            ranks: None,
            allow_writes: false,
            network: None,
            command,
        }
    }
}

/// Which results are computed for real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Values {
    /// None
    Off,
    /// Those of small tensors
    Small,
    /// All, in host memory (slow)
    AllHost,
}

/// What a program may do on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Nothing: the kernel gives it a network that holds only its own processes
    None,
    /// Read: oomph answers requests of Python's HTTP clients other than GET and HEAD; they are not sent
    Read,
    /// Everything, except for uploads by trackers
    All,
}

/// Which batches of a training loader are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Batches {
    /// The program's own, and in step 3 one of the longest samples
    Longest,
    /// The program's own
    Seen,
}

/// Where the tokens of a mixture of experts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Routing {
    /// To all experts alike
    Balanced,
    /// To the same few, which takes the most memory
    Worst,
}

//! What `dry-run`, `fix` and `tune` take alike: a program, and the cards it runs on.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

/// A program and how it is to be run.
#[derive(Debug, Args)]
pub struct ProgramArgs {
    /// The cards: NAME, NAME:COUNT, or several with commas (see `oomph gpus`). Without it: the NVIDIA cards of this
    /// machine; where there are none, a card without a limit
    #[arg(long, value_name = "NAME[:COUNT]", value_delimiter = ',')]
    pub gpu: Vec<String>,

    /// Give each card this much memory instead of its own
    #[arg(long, value_name = "SIZE")]
    pub vram: Option<String>,

    /// Run in an environment with this package (any pip requirement; repeatable)
    #[arg(long, value_name = "PKG")]
    pub with: Vec<String>,

    /// Stop after N optimizer steps [default: run to the end, with loops shortened once their memory has settled]
    #[arg(long, value_name = "N", conflicts_with = "until_exit")]
    pub steps: Option<u32>,

    /// Let the program run to its end, with every iteration of its loops
    #[arg(long)]
    pub until_exit: bool,

    /// How long a loop that cannot be shortened goes on after its peak has settled, and how long memory that grows is
    /// followed (90s, 10m) [default: 1m]
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["until_exit", "steps"])]
    pub budget: Option<String>,

    /// Stop after this time (90s, 10m, 1h30m)
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,

    /// Which results are computed for real, on the CPU, so that the program can read them back
    #[arg(long, value_enum, default_value_t = Values::Small)]
    pub values: Values,

    /// Which experts of a mixture get the tokens where the router's choice is not computed
    #[arg(long, value_enum, default_value_t = Routing::Balanced)]
    pub routing: Routing,

    /// Which batches are run where their sizes differ
    #[arg(long, value_enum, default_value_t = Batches::Longest)]
    pub batches: Batches,

    /// Where a pretrained model's weights are not on disk, build it from its config
    #[arg(long)]
    pub random_weights: bool,

    /// Run only these ranks of a job of many: numbers, ranges and `last` with commas, or `all`; the others are answered
    /// for [default: 0,1,last of more than 4]
    #[arg(long, value_name = "RANKS")]
    pub ranks: Option<String>,

    /// Let the program write and upload, though it computes rubbish
    #[arg(long)]
    pub allow_writes: bool,

    /// What the program may do on the network [default: read; with --allow-writes: all]
    #[arg(long, value_enum)]
    pub network: Option<Network>,

    /// The program and its arguments, after `--`
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
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
    /// Read: requests of Python's HTTP clients that send (all but GET and HEAD) are answered by oomph and go nowhere
    Read,
    /// Everything, except for uploads by trackers
    All,
}

/// Which batches of a training loader are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Batches {
    /// Those that come, and in step 3 one of the longest samples
    Longest,
    /// Those that come
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

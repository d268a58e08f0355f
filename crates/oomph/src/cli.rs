//! What was typed. Nothing is interpreted here; [`crate::plan`] says what it means.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const AFTER_HELP: &str = "\
Examples:
  Does a training script fit on a card that is not here? (no GPU is needed)
      oomph dry-run --gpu rtx-3060 -- python train.py --batch-size 16

  Which cards would hold it?
      oomph dry-run -- python train.py --batch-size 16

  Why did it run out of memory? (a log, or a snapshot of the memory)
      oomph explain train.log
      oomph explain snapshot.pickle

  Which cards are known, and what is known of one?
      oomph gpus
      oomph gpus 4090";

const EXIT_CODES: &str = "\
Exit status:
  0    it fits, or what was asked for is done
  1    it does not fit
  2    wrong usage, or something that is needed is missing or cannot be read
  3    the program failed for another reason
  130  ended by Ctrl-C (143: by SIGTERM)";

const DRY_RUN_HELP: &str = "\
Examples:
  On one card:
      oomph dry-run --gpu rtx-3060 -- python train.py --batch-size 16

  In an environment made for it (kept in the cache and reused):
      oomph dry-run --gpu rtx-3060 --with torch --with transformers -- python train.py

  On eight cards, as torchrun would use them:
      oomph dry-run --gpu h100:8 -- torchrun --nproc-per-node 8 train.py

  On a card of 8 GiB, whatever it is called:
      oomph dry-run --vram 8GiB -- python generate.py

  Without a limit: the peak, and the cards that hold it:
      oomph dry-run -- python generate.py

  For a script:
      oomph dry-run --gpu l4 --format json -- python train.py > answer.json

The program runs unmodified. Its kernels compute nothing, so what it would
save goes to a folder that is removed, and uploads are off; --allow-writes lets
them through. Sizes are written 8GiB, 8G, 7.5GB or 512MiB, durations 90s, 10m
or 1h30m.

Exit status:
  0    it fits
  1    it does not fit
  2    wrong usage, or something that is needed is missing or cannot be read
  3    the program failed for another reason
  130  ended by Ctrl-C (143: by SIGTERM)";

const EXPLAIN_HELP: &str = "\
Examples:
  Why did this run die?
      oomph explain train.log
      python train.py 2>&1 | oomph explain -

  Whose memory was it, and would another setting or card have saved the run?
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

  Wait for the failure of a run that goes on:
      oomph explain --follow train.log

What a file is, is seen from its contents: a log; a snapshot (pickle, also
gzip or zstd); a profiler trace with memory events; an exported memory
timeline.

Exit status:
  0    no GPU out-of-memory error was found
  1    one was found
  2    wrong usage, or a file cannot be read";

const DIFF_HELP: &str = "\
Examples:
      oomph diff before.pickle after.pickle
      oomph diff --format json monday.pickle tuesday.pickle";

const CHECK_HELP: &str = "\
Examples:
  In CI, so that nobody makes the peak grow unseen:
      oomph check snapshot.pickle --max-peak 20GiB
      oomph check snapshot.pickle --baseline good.pickle --max-growth 2%

Exit status:
  0    every limit holds
  1    one does not
  2    wrong usage, or a file cannot be read";

/// Runs CUDA programs on a virtual GPU, and says whether they fit.
#[derive(Debug, Parser)]
#[command(name = "oomph", version, after_help = AFTER_HELP, after_long_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
#[command(arg_required_else_help = true, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Say nothing on stderr but warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program on a virtual GPU: does it fit, what does it need, on which line does it die
    #[command(after_help = DRY_RUN_HELP, override_usage = "oomph dry-run [OPTIONS] -- CMD...")]
    DryRun(Box<DryRunArgs>),
    /// Tell from a log, a snapshot or a trace why memory ran out, whose it was, and what would help
    #[command(after_help = EXPLAIN_HELP)]
    Explain(ExplainArgs),
    /// Compare two recordings: what grew, by owner, module and stack
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Hold a recording against limits, for CI
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// List the cards that --gpu takes, or tell what is known of one
    Gpus(GpusArgs),
}

/// What `oomph dry-run` takes.
#[derive(Debug, Args)]
pub struct DryRunArgs {
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

    /// Stop after N optimizer steps [default: when the peak has not moved for 3 steps]
    #[arg(long, value_name = "N", conflicts_with = "until_exit")]
    pub steps: Option<u32>,

    /// Let the program run to its end
    #[arg(long)]
    pub until_exit: bool,

    /// Stop after this time (90s, 10m, 1h30m)
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,

    /// Which results are computed for real, on the CPU, so that the program can read them back
    #[arg(long, value_enum, default_value_t = Values::Small)]
    pub values: Values,

    /// Where a pretrained model's weights are not on disk, build it from its config
    #[arg(long)]
    pub random_weights: bool,

    /// Let the program write and upload, though it computes rubbish
    #[arg(long)]
    pub allow_writes: bool,

    /// After an out-of-memory error, do not run again to learn how much is needed
    #[arg(long)]
    pub no_probe: bool,

    /// Write the program's memory over time to FILE, as a snapshot that PyTorch's own viewer opens too; with several
    /// processes, one file each
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Write the program's memory over time to FILE for other tools: .parquet, .json (Perfetto) or a folder for
    /// TensorBoard
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Do not record whose memory it is
    #[arg(long, conflicts_with_all = ["snapshot", "trace"])]
    pub no_owners: bool,

    /// How the answer is written on stdout; with json the program's stdout goes to stderr
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Write the answer to FILE as well, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// The program and its arguments, after `--`
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What `oomph explain` takes.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Logs, snapshots, traces; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The moment: peak, oom, end, or a time in microseconds as the recording counts [default: oom where there is one,
    /// else peak]
    #[arg(long, value_name = "MOMENT")]
    pub at: Option<String>,

    /// The card that it ran on, or should run on
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,

    /// The card's memory, instead of its own
    #[arg(long, value_name = "SIZE")]
    pub vram: Option<String>,

    /// What a dry run named [default: FILE.names.json beside FILE.pickle, where --snapshot puts it]
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,

    /// Leave out what other settings and cards would have done
    #[arg(long)]
    pub no_what_if: bool,

    /// Use what can be read of a damaged file
    #[arg(long)]
    pub salvage: bool,

    /// Go on reading a log that is still being written, and answer at each failure
    #[arg(long)]
    pub follow: bool,

    /// Write the recording for other tools: .parquet, .json (Perfetto), .pickle, or a folder for TensorBoard
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What `oomph diff` takes.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The earlier recording
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,

    /// The later recording
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,

    /// Use what can be read of a damaged file
    #[arg(long)]
    pub salvage: bool,

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What `oomph check` takes.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The most that may be reserved at the peak
    #[arg(long, value_name = "SIZE")]
    pub max_peak: Option<String>,

    /// The most that may be allocated at the peak
    #[arg(long, value_name = "SIZE")]
    pub max_allocated: Option<String>,

    /// An earlier recording, for --max-growth
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// The most by which the peak may have grown since the baseline, as a size or a percentage
    #[arg(long, value_name = "SIZE|PERCENT", requires = "baseline")]
    pub max_growth: Option<String>,

    /// Fail where memory grows with every step
    #[arg(long)]
    pub no_leak: bool,

    /// Use what can be read of a damaged file
    #[arg(long)]
    pub salvage: bool,

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What `oomph gpus` takes.
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// One card, by any of its names
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// How the answer is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
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

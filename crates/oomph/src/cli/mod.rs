//! Defines the command line, and with [`crate::syntax`] reads it: what the commands take are values, not texts.

#[cfg(target_os = "linux")]
mod attach;
mod calibrate;
mod compare;
mod dry_run;
mod explain;
mod fix;
mod fleet;
mod maintenance;
mod page;
mod plan;
mod program;
mod reading;
mod run;
mod shell;
mod sweep;
mod tune;
mod view;
mod watch;

use clap::builder::RangedU64ValueParser;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use oomph_gpu::Gpu;

use crate::output::Form;
use crate::syntax::{Syntax, gpu};

#[cfg(target_os = "linux")]
pub use attach::AttachArgs;
pub use calibrate::CalibrateArgs;
pub use compare::{CheckArgs, DiffArgs, ReviewFormat};
pub use dry_run::DryRunArgs;
pub use explain::ExplainArgs;
pub use fix::{FixArgs, FixFile};
pub use fleet::FleetArgs;
pub use maintenance::{CacheArgs, CacheCommand, DoctorArgs};
pub use page::PageArgs;
pub use plan::{CacheArg, ConfigArg, MethodArg, OffloadArg, PlanArgs, PrecisionArg, TaskArg};
pub use program::{Batches, Network, ProgramArgs, Routing, Values};
pub use reading::ReadingArgs;
pub use run::{Record, RunArgs};
pub use shell::{CompletionsArgs, ManArgs};
pub use sweep::{JobOptions, Scheduler, SweepArgs, SweepFormat};
pub use tune::TuneArgs;
pub use view::ViewArgs;
pub use watch::WatchArgs;

const AFTER_HELP: &str = "\
Examples:
  Does a training script fit on a card you do not have? (no GPU is needed)
      oomph dry-run --gpu rtx-3060 -- python train.py --batch-size 16

  Which cards would it fit on?
      oomph dry-run -- python train.py --batch-size 16

  Why did it run out of memory? (a log, or a snapshot of the memory)
      oomph explain train.log
      oomph explain snapshot.pickle

  Look at a recording in the browser:
      oomph view snapshot.pickle

  What makes it fit, and what is the largest batch?
      oomph fix --gpu rtx-3060 -- python train.py --batch-size 16
      oomph tune --gpu rtx-3060 --vary batch=1..512 -- python train.py --batch-size {batch}

  Which of many cards, batches and lengths fit?
      oomph sweep sweep.yaml --by batch

  What does a model need, before you have a script?
      oomph plan llama-3-8b --task qlora --batch 2 --seq 4096 --gpu rtx-4090

  Which cards does oomph know, and what does it know about one?
      oomph gpus
      oomph gpus 4090";

const EXIT_CODES: &str = "\
Exit status:
  0    it fits, or the command did its work
  1    it does not fit, it fits only by catching an error, or the answer is uncertain
  2    wrong usage, a required file or package is missing or unreadable, or oomph could not run it
  3    the program failed for another reason, ran on the CPU instead, or met a fault of oomph's own
  4    a search ran out of time, or cells of a sweep have no answer yet
  130  ended by Ctrl-C (143: by SIGTERM)";

/// Runs CUDA programs on a virtual GPU, and says whether they fit.
#[derive(Debug, Parser)]
#[command(name = "oomph", version, after_help = AFTER_HELP, after_long_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}"))]
#[command(arg_required_else_help = true, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Print only warnings and errors on stderr
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// End when the parent process ends (`oomph mcp` starts its commands this way)
    #[arg(long, global = true, hide = true)]
    pub ends_with_parent: bool,
}

impl Cli {
    /// Reads the command line of this process.
    ///
    /// # Errors
    /// When it is not understood, or asks for help.
    pub fn parsed() -> Result<Self, clap::Error> {
        let mut command = definition();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The definition of the whole command line.
pub fn definition() -> clap::Command {
    // `--list` needs no program.
    let listed = |argument: clap::Arg| argument.required(false).required_unless_present("list");
    Cli::command().mut_subcommand("fix", |fix| fix.mut_arg("command", listed))
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program on a virtual GPU: whether it fits, how much it needs, and on which line it dies
    #[command(after_help = dry_run::HELP, override_usage = "oomph dry-run [OPTIONS] -- CMD...")]
    DryRun(Box<DryRunArgs>),
    /// Find the cheapest changes that make a program fit; each is run on the virtual GPU
    #[command(after_help = fix::HELP, override_usage = "oomph fix [OPTIONS] -- CMD...")]
    Fix(Box<FixArgs>),
    /// Find the largest batch, length or resolution that fits; both sides of the boundary are run
    #[command(after_help = tune::HELP, override_usage = "oomph tune --vary NAME=LOW..HIGH [OPTIONS] -- CMD... {NAME}")]
    Tune(Box<TuneArgs>),
    /// Run a matrix of dry runs (cards, batches, lengths, settings, commits), here or as a job of Slurm, Kubernetes or Ray
    #[command(after_help = sweep::HELP)]
    Sweep(Box<SweepArgs>),
    /// Collect logs, snapshots, reports and journals of many runs into one Parquet dataset (by oomph-fleet)
    #[command(after_help = fleet::COLLECT_HELP, override_usage = "oomph collect [OPTIONS] SOURCE... --into DIR")]
    Collect(FleetArgs),
    /// Query such a dataset in SQL, or run one of the named queries (by oomph-fleet)
    #[command(after_help = fleet::QUERY_HELP, override_usage = "oomph query [OPTIONS] QUERY DIR")]
    Query(FleetArgs),
    /// Run a program on this machine's GPU, and restart it with a verified change if it runs out of GPU memory
    #[command(after_help = run::HELP, override_usage = "oomph run [OPTIONS] -- CMD...")]
    Run(Box<RunArgs>),
    /// Show which processes hold GPU memory and how it develops, or wait until a card has room
    #[command(after_help = watch::HELP)]
    Watch(WatchArgs),
    /// Inspect a running program's GPU memory and its owners: a snapshot, a few recorded steps, or a snapshot when it dies
    #[cfg(target_os = "linux")]
    #[command(after_help = attach::HELP, override_usage = "oomph attach [OPTIONS] PID...")]
    Attach(AttachArgs),
    /// Compare this machine's GPU with its virtual twin, and keep the differences for later dry runs
    #[command(after_help = calibrate::HELP)]
    Calibrate(CalibrateArgs),
    /// Explain from a log, a snapshot or a trace why memory ran out, who held it, and what would help
    #[command(after_help = explain::HELP)]
    Explain(ExplainArgs),
    /// Show a recording in the browser: memory over time, the address space, flame graphs, causes
    #[command(after_help = view::HELP)]
    View(ViewArgs),
    /// Compare two recordings: what grew, by owner, module and stack
    #[command(after_help = compare::DIFF_HELP)]
    Diff(DiffArgs),
    /// Check a recording or dry-run reports against limits, for CI
    #[command(after_help = compare::CHECK_HELP)]
    Check(CheckArgs),
    /// Estimate what a model needs for a task, from its files or its name alone
    #[command(after_help = plan::HELP)]
    Plan(Box<PlanArgs>),
    /// List the cards that --gpu accepts, or show one card's data
    Gpus(GpusArgs),
    /// Write shell completions to stdout
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages to a folder
    #[command(hide = true)]
    Man(ManArgs),
    /// Check this installation: what works, what does not, why, and what to do
    #[command(after_help = maintenance::DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Show or clean the cache: Python environments, virtual GPUs, compiled code
    #[command(after_help = maintenance::CACHE_HELP)]
    Cache(CacheArgs),
    /// Serve dry-run, fix, tune, plan, explain and gpus to a coding agent (Model Context Protocol, on stdin and stdout)
    #[cfg(feature = "mcp")]
    #[command(after_help = maintenance::MCP_HELP)]
    Mcp,
    /// Show the help of a command, or with --format json the whole command line as JSON
    Help(HelpArgs),
}

/// What `oomph help` takes.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// The command
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What `oomph gpus` takes.
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// One card, by any of its names
    #[arg(value_name = "NAME", value_parser = Syntax(gpu))]
    pub name: Option<&'static Gpu>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// A count of at least 1.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1000)
}

/// How the answer of a command that looks for memory is written.
#[derive(Clone, Copy, Debug, Args)]
pub struct FormatArgs {
    /// Output format on stdout; with json, the program's own stdout goes to stderr
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Print one line of JSON of at most 2 kB: verdict, need, limit, cause, place, fixes, next command. Implies
    /// --format json
    #[arg(long)]
    brief: bool,
}

impl FormatArgs {
    /// The form that the options select.
    pub fn form(self) -> Form {
        match (self.brief, self.format) {
            (true, _) => Form::Brief,
            (false, Format::Json) => Form::Json,
            (false, Format::Text) => Form::Text,
        }
    }
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
}

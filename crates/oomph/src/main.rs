//! The command line of oomph.
//!
//! It works in two steps: [`cli`] names what may be typed, and [`syntax`] turns each text into a value or refuses it. Then a
//! module per command does the work: `oomph-launch` runs the program, `oomph-ledger` and the hook's files record what
//! happened, [`assemble`] makes the report of it, `oomph-report` writes it.
//!
//! Design constraints:
//! - Data goes to stdout, talk to stderr. In text mode the program's own output passes through unchanged, and the
//!   answer follows it.
//! - What goes wrong is one line on stderr, with advice where there is any, and an exit status that `--help` documents.
//! - No input makes it panic, and a reader that goes away is not an error.
#![forbid(unsafe_code)]

mod activity;
mod allowed;
mod architectures;
mod assemble;
#[cfg(target_os = "linux")]
mod attach;
mod built;
mod cache;
mod calibrate;
mod cards;
mod cells;
mod changes;
mod cli;
mod compare;
mod correction;
mod doctor;
#[cfg(test)]
mod drift_tests;
mod dry_run;
mod elsewhere;
mod embedded;
mod evidence;
mod explain;
mod export;
mod failure;
mod fix;
mod fleet;
mod followed;
mod foretell;
mod fork_runner;
mod gpus;
mod grown;
#[cfg(test)]
mod hand_made;
mod help;
mod html;
#[cfg(feature = "mcp")]
mod mcp;
mod needs;
mod observation;
mod output;
mod plan;
mod pool;
mod program;
mod progress;
mod recordings;
mod recovered;
mod review;
mod run;
mod run_context;
mod share;
mod shell;
mod shell_words;
mod source_lines;
mod status;
mod sweep;
mod syntax;
mod trial;
mod tune;
mod unsure;
mod view;
mod waits;
mod watch;
mod whole_pool;
mod whose;

use std::process::ExitCode;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    if let Some((library, arguments)) = oomph_launch::asked_as_nvidia_smi() {
        return ExitCode::from(oomph_smi::run(&arguments, &library));
    }
    failure::outlive_the_limit_of_files();
    oomph_launch::serve_watchdog();
    let cli = match Cli::parsed() {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(refused) = syntax::refused(&error) {
                return failure::report(&refused.clone().into());
            }
            // Help that was asked for is data and a success; anything else is wrong usage.
            let status = u8::try_from(error.exit_code()).unwrap_or(status::USAGE);
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    if cli.ends_with_parent {
        oomph_launch::end_with_parent();
    }
    let result = match cli.command {
        Command::DryRun(args) => dry_run::run(*args, cli.quiet),
        Command::Fix(args) => fix::run(*args, cli.quiet),
        Command::Tune(args) => tune::run(*args, cli.quiet),
        Command::Sweep(args) => sweep::run(&args, cli.quiet),
        Command::Collect(args) => fleet::hand_over("collect", &args, cli.quiet),
        Command::Query(args) => fleet::hand_over("query", &args, cli.quiet),
        Command::Run(args) => run::run(*args, cli.quiet),
        Command::Watch(args) => watch::run(&args, cli.quiet),
        Command::Calibrate(args) => calibrate::run(&args, cli.quiet),
        #[cfg(target_os = "linux")]
        Command::Attach(args) => attach::run(&args, cli.quiet),
        Command::Explain(args) => explain::run(&args, cli.quiet),
        Command::View(args) => view::run(&args, cli.quiet),
        Command::Diff(args) => compare::diff(&args),
        Command::Check(args) => compare::check(&args),
        Command::Plan(args) => plan::run(&args, cli.quiet),
        Command::Gpus(args) => gpus::run(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::Doctor(args) => doctor::run(&args, cli.quiet),
        Command::Cache(args) => cache::run(&args),
        #[cfg(feature = "mcp")]
        Command::Mcp => mcp::run(),
        Command::Help(args) => help::run(&args),
    };
    result.unwrap_or_else(|error| failure::report(&error))
}

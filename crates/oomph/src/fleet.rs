//! `oomph collect` and `oomph query`: hands over to `oomph-fleet`, a separate program because it contains DataFusion.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cli::{self, FleetArgs};
use crate::failure::hinted;

/// The name of the program.
const PROGRAM: &str = "oomph-fleet";

/// Becomes `oomph-fleet` with the same words. Its own name, `oomph`, says how it was called.
///
/// # Errors
/// When it is not installed, or cannot be started.
pub fn hand_over(command: &str, args: &FleetArgs, quiet: bool) -> Result<ExitCode> {
    let Some(program) = find() else {
        if args.words.iter().any(|word| word == "--help" || word == "-h") {
            let mut definition = cli::definition();
            definition.build();
            if let Some(found) = definition.find_subcommand_mut(command) {
                found.print_long_help().context("cannot write to stdout")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        return Err(hinted(
            format!("oomph {command} needs {PROGRAM}, which is neither next to oomph nor on PATH"),
            "build it in oomph's repository: cargo install --locked --path crates/oomph-fleet",
        ));
    };
    let mut start = Command::new(&program);
    start.arg(command).args(quiet.then_some("--quiet")).args(&args.words);
    become_it(start).with_context(|| format!("cannot start {}", program.display()))
}

#[cfg(unix)]
fn become_it(mut start: Command) -> std::io::Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    Err(start.arg0("oomph").exec())
}

#[cfg(not(unix))]
fn become_it(mut start: Command) -> std::io::Result<ExitCode> {
    let status = start.status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}

/// Where it is: next to this program, or on `PATH`.
fn find() -> Option<PathBuf> {
    let name = format!("{PROGRAM}{}", env::consts::EXE_SUFFIX);
    let own_folder = env::current_exe().ok().and_then(|oomph| oomph.parent().map(PathBuf::from));
    let path = env::var_os("PATH").unwrap_or_default();
    own_folder.into_iter().chain(env::split_paths(&path)).map(|folder| folder.join(&name)).find(|file| file.is_file())
}

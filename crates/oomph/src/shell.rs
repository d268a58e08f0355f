//! `oomph completions` and `oomph man`: what packages install next to the program.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::output;
use crate::status;

/// Writes a shell's completions to stdout.
///
/// # Errors
/// When stdout cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "oomph", &mut script);
    output::data(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::from(status::DONE))
}

/// Writes a page of the manual for the program and one for each command.
///
/// # Errors
/// When the folder cannot be written.
pub fn man(args: &ManArgs) -> Result<ExitCode> {
    fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.folder))
        .with_context(|| format!("cannot write the manual to {}", args.folder.display()))?;
    Ok(ExitCode::from(status::DONE))
}

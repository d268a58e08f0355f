//! Commands that a program of their own does, as git has them: `oomph collect` and `oomph query` need a query engine that
//! takes longer to build than all the rest, and that most users never need.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::failure::{hinted, status};

/// The program that does them.
const FLEET: &str = "oomph-fleet";

/// Hands a command over to `oomph-fleet`, beside this program or on the path, and ends as it ends.
///
/// # Errors
/// When it is not installed.
pub fn fleet(name: &str, args: &[OsString], quiet: bool) -> Result<ExitCode> {
    let mut command = Command::new(program().as_deref().unwrap_or(OsStr::new(FLEET)));
    command.arg(name).args(args);
    if quiet {
        command.arg("--quiet");
    }
    match become_it(&mut command) {
        Ok(status) => Ok(status),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(hinted(
            format!("oomph {name} needs {FLEET}, which is neither beside this program nor on the path"),
            format!("install it: cargo install {FLEET}"),
        )),
        Err(error) => Err(error).with_context(|| format!("cannot run {FLEET}")),
    }
}

/// Whether `oomph-fleet` is beside this program.
pub fn has_fleet() -> bool {
    program().is_some()
}

/// The one beside this program, which is of the same release.
fn program() -> Option<OsString> {
    let own = std::env::current_exe().ok()?;
    let beside: PathBuf = own.parent()?.join(format!("{FLEET}{}", std::env::consts::EXE_SUFFIX));
    beside.is_file().then(|| beside.into_os_string())
}

/// Goes on as the other program, so that signals and the exit status are its own.
#[cfg(unix)]
fn become_it(command: &mut Command) -> io::Result<ExitCode> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> io::Result<ExitCode> {
    let ended = command.status()?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::from(status::PROGRAM_FAILED), ExitCode::from))
}

//! Checks what only a run shows: what keeps a program's writes away, whether the network can be cut off, whether the
//! virtual GPU is seen.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use oomph_report::{Check, CheckState, DryRunReport, Verdict, WriteFloor, clean};

use super::{less, well};

/// What a torch does first on a card.
const PROGRAM: &str = "import torch; x = torch.zeros(1 << 20, device='cuda'); torch.cuda.synchronize()";

/// Adds what a dry run of a program that does nothing shows.
pub fn protection(checks: &mut Vec<Check>) {
    let nothing = ["sh", "-c", ":"].map(OsStr::new);
    checks.push(match dry_run(&[], &nothing) {
        Ok(report) => files(&report),
        Err(error) => less("files", CheckState::Broken, "no program can be started", error, ""),
    });
    checks.push(match dry_run(&["--network", "none"], &nothing) {
        Ok(_) => well(
            "network",
            "it can be cut off (--network none); without that, sends of Python's clients are answered here",
        ),
        Err(error) => {
            let found = "--network none does not work; sends of Python's clients are answered here";
            let todo = "allow user namespaces, or run in a container or a machine without a network";
            less("network", CheckState::Limited, found, error, todo)
        }
    });
}

fn files(report: &DryRunReport) -> Check {
    let Some(writes) = &report.writes else { return well("files", "nothing was written") };
    let why = writes.reason.clone().unwrap_or_else(|| "no reason is known".into());
    let todo = "allow user namespaces (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; in \
                Docker --security-opt seccomp=unconfined)";
    match writes.kept_away_by {
        WriteFloor::Kernel => well("files", "a dry run's programs write into a private view of the file system"),
        WriteFloor::UserNamespace => {
            well("files", "a dry run's programs write into a private view of the file system (user namespace)")
        }
        WriteFloor::Fence => {
            let found = "the kernel refuses a dry run's writes outside its folders (Landlock); what Python writes is redirected";
            less("files", CheckState::Limited, found, why, todo)
        }
        WriteFloor::Hook => {
            let found = "only what Python writes is kept away from your files: a dry run's other programs really write";
            less("files", CheckState::Limited, found, why, todo)
        }
    }
}

/// Runs a small program of this Python on a virtual card.
pub fn small_program(python: &Path) -> Check {
    let command = [python.as_os_str(), OsStr::new("-c"), OsStr::new(PROGRAM)];
    let todo =
        "see what `oomph dry-run --gpu rtx-3060 -- python -c 'import torch; torch.zeros(1, device=\"cuda\")'` says";
    match dry_run(&["--gpu", "rtx-3060", "--no-owners"], &command) {
        Ok(report) if report.verdict == Verdict::Fits => {
            let seconds = format!("{:.1}", report.elapsed_seconds);
            well("run", format!("torch sees the virtual GPU and allocates on it ({seconds} s)"))
        }
        Ok(report) => {
            let why = report.fault.map(|fault| fault.message).or(report.fallback).unwrap_or_else(|| {
                format!("the program ended with status {} without using the card", report.exit_status)
            });
            less("run", CheckState::Broken, "a small program did not run on the virtual GPU", why, todo)
        }
        Err(error) => less("run", CheckState::Broken, "a small program did not run on the virtual GPU", error, todo),
    }
}

/// A dry run by this executable, as a process of its own: a run is set up once in a process.
fn dry_run(options: &[&str], program: &[&OsStr]) -> Result<DryRunReport, String> {
    let executable = std::env::current_exe().map_err(|error| format!("cannot find oomph itself: {error}"))?;
    let mut command = Command::new(executable);
    command.args(["dry-run", "--ends-with-parent", "--quiet", "--no-probe", "--format", "json"]).args(options);
    if !options.contains(&"--gpu") {
        command.args(["--vram", "8GiB"]);
    }
    let output = command.arg("--").args(program).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        clean(error.or_else(|| said.lines().last()).unwrap_or("it gave no answer")).into_owned()
    })
}

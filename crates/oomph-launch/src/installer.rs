//! uv, or pip where there is no uv: making a virtual environment and installing into it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{LaunchError, find_program};

/// How many lines of a failed installer's standard error are kept.
const KEPT_LINES: usize = 12;

/// What happens to what the installer writes. It never reaches our standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallerOutput {
    /// It goes to our standard error, progress bars and all: that is a terminal.
    Terminal,
    /// It is read, and its last lines are part of the error if it fails.
    Quiet,
}

impl InstallerOutput {
    /// [`InstallerOutput::Terminal`] when standard error is one.
    pub fn of_stderr() -> Self {
        use std::io::IsTerminal;
        if std::io::stderr().is_terminal() { Self::Terminal } else { Self::Quiet }
    }
}

/// Whether the programs' Python compiles what it imports anew each time, as images for containers often ask for. An
/// import of torch with transformers takes twice as long then, in every run, unless the installer compiles it once.
fn python_writes_no_bytecode() -> bool {
    std::env::var_os("PYTHONDONTWRITEBYTECODE").is_some_and(|value| !value.is_empty())
}

/// The tool that makes environments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Installer {
    Uv(PathBuf),
    Pip,
}

impl Installer {
    /// uv if it is there and works (a version manager's stand-in for it may not), else pip if the base has what that
    /// needs.
    pub(crate) fn find(base: &Path, base_has_venv: bool, directory: &Path) -> Result<Self, LaunchError> {
        let named = std::env::var_os("UV").filter(|value| !value.is_empty()).map(PathBuf::from);
        let on_path = || find_program("uv".as_ref(), directory, std::env::var_os("PATH").as_deref());
        let works = |uv: &PathBuf| {
            let mut command = Command::new(uv);
            command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        match named.filter(works).or_else(|| on_path().filter(works)) {
            Some(uv) => Ok(Self::Uv(uv)),
            None if base_has_venv => Ok(Self::Pip),
            None => Err(LaunchError::NoInstaller { python: base.to_owned() }),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Uv(_) => "uv",
            Self::Pip => "pip",
        }
    }

    /// The two steps that fill `folder`. With `compile`, what is installed is compiled as well: pip always does that.
    fn commands(
        &self,
        base: &Path,
        folder: &Path,
        python: &Path,
        requirements: &[String],
        compile: bool,
    ) -> [Command; 2] {
        match self {
            Self::Uv(uv) => {
                let mut make = Command::new(uv);
                make.args(["venv", "--no-project", "--python"]).arg(base).arg(folder);
                let mut fill = Command::new(uv);
                fill.args(["pip", "install", "--python"]).arg(python);
                if compile {
                    fill.arg("--compile-bytecode");
                }
                fill.arg("--").args(requirements);
                [make, fill]
            }
            Self::Pip => {
                let mut make = Command::new(base);
                make.args(["-m", "venv"]).arg(folder);
                let mut fill = Command::new(python);
                fill.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--"]);
                fill.args(requirements);
                [make, fill]
            }
        }
    }

    /// Makes the environment and installs into it.
    pub(crate) fn build(
        &self,
        base: &Path,
        folder: &Path,
        python: &Path,
        requirements: &[String],
        work: &Work<'_>,
    ) -> Result<(), LaunchError> {
        for mut command in self.commands(base, folder, python, requirements, python_writes_no_bytecode()) {
            command.current_dir(work.directory).stdin(Stdio::null());
            // Variables of another environment, or of a run, must not reach into this one.
            for name in ["VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "OOMPH_RUN", "UV_PYTHON"] {
                command.env_remove(name);
            }
            let failure = match run(&mut command, work.output) {
                Ok(None) => continue,
                Ok(Some(lines)) => lines,
                Err(error) => vec![error.to_string()],
            };
            #[cfg(target_os = "linux")]
            crate::interrupts::wait_if_dying();
            return Err(self.failed(failure, folder, requirements));
        }
        Ok(())
    }

    fn failed(&self, lines: Vec<String>, folder: &Path, requirements: &[String]) -> LaunchError {
        let full = ["No space left on device", "Disk quota exceeded", "os error 28", "Errno 28"];
        if lines.iter().any(|line| full.iter().any(|text| line.contains(text))) {
            return LaunchError::DiskFull { path: folder.to_owned(), setting: "OOMPH_CACHE_DIR" };
        }
        let reason = match lines.iter().find_map(|line| complaint(line)) {
            Some(line) => line,
            None if lines.is_empty() => "see its message above".to_owned(),
            None => "its last lines follow".to_owned(),
        };
        let requirements = requirements.join(", ");
        LaunchError::InstallFailed { tool: self.name(), requirements, reason, details: lines.join("\n") }
    }
}

/// The circumstances of an installation.
pub(crate) struct Work<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) output: InstallerOutput,
}

/// The line in which an installer says what is wrong, without its decoration.
fn complaint(line: &str) -> Option<String> {
    let line = line.trim();
    let text = ["ERROR: ", "error: ", "× "].iter().find_map(|start| line.strip_prefix(start))?;
    Some(text.trim_end_matches(['.', ':']).to_owned())
}

/// Runs one step. `Some` holds the last lines of its standard error when it failed.
fn run(command: &mut Command, output: InstallerOutput) -> std::io::Result<Option<Vec<String>>> {
    match output {
        InstallerOutput::Terminal => command.stdout(Stdio::from(std::io::stderr())).stderr(Stdio::inherit()),
        InstallerOutput::Quiet => command.stdout(Stdio::null()).stderr(Stdio::piped()),
    };
    #[cfg(target_os = "linux")]
    let (mut child, _helper) = crate::processes::spawn_helper(command)?;
    #[cfg(not(target_os = "linux"))]
    let mut child = command.spawn()?;
    let mut lines = VecDeque::new();
    if let Some(stderr) = child.stderr.take() {
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if !text.is_empty() {
                lines.push_back(text);
            }
            if lines.len() > KEPT_LINES {
                lines.pop_front();
            }
            line.clear();
        }
    }
    let status = child.wait()?;
    Ok((!status.success()).then(|| lines.into()))
}

/// The environment variables that change what an installer would install. They belong to the key of an environment.
pub(crate) fn settings() -> Vec<(&'static str, OsString)> {
    const NAMES: [&str; 14] = [
        "PIP_CONSTRAINT",
        "PIP_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
        "PIP_INDEX_URL",
        "PIP_PRE",
        "UV_CONSTRAINT",
        "UV_DEFAULT_INDEX",
        "UV_EXCLUDE_NEWER",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_OVERRIDE",
        "UV_TORCH_BACKEND",
    ];
    NAMES.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_will_not_compile_is_compiled_at_once() {
        let fills = |installer: Installer, compile: bool| {
            let requirements = ["torch==2.15.0".to_owned()];
            let [_, fill] =
                installer.commands("python3".as_ref(), "/e".as_ref(), "/e/bin/python".as_ref(), &requirements, compile);
            fill.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let uv = || Installer::Uv("uv".into());
        let compiling = ["pip", "install", "--python", "/e/bin/python", "--compile-bytecode", "--", "torch==2.15.0"];
        assert_eq!(fills(uv(), true), compiling);
        assert!(!fills(uv(), false).contains(&"--compile-bytecode".to_owned()));
        assert!(!fills(Installer::Pip, true).contains(&"--compile-bytecode".to_owned()));
    }

    #[test]
    fn failures_become_one_line() {
        let uv = Installer::Uv("uv".into());
        let fail = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            uv.failed(lines, Path::new("/cache/e"), &["torch==99".to_owned()])
        };
        let error = fail(&["  × No solution found when resolving dependencies:", "  ╰─▶ there is no torch==99."]);
        assert_eq!(error.to_string(), "uv could not install torch==99: No solution found when resolving dependencies");
        assert!(error.details().contains("there is no torch==99"));
        assert!(fail(&[]).to_string().ends_with("see its message above"));
        let full = fail(&["error: Failed to install: x", "  Caused by: No space left on device (os error 28)"]);
        assert!(matches!(full, LaunchError::DiskFull { .. }), "{full}");
    }
}

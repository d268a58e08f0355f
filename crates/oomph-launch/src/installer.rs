//! Makes a virtual environment and installs into it, with uv, or with pip where there is no uv.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oomph_protocol::paths;

use crate::permissions::write_private;
use crate::secrets::without_password;
use crate::{LaunchError, find_program};

/// How many lines of a failed installer's standard error are kept.
const KEPT_LINES: usize = 12;

/// Compiles what is installed on all cores. Templates and code of other versions of Python, which some packages carry, do not
/// compile, and nobody runs them.
const COMPILE: &str = "import compileall, sysconfig
for name in {sysconfig.get_path(kind) for kind in ('purelib', 'platlib')}:
    compileall.compile_dir(name, quiet=2, workers=0)";

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

/// The tool that makes environments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Installer {
    Uv(PathBuf),
    Pip,
}

/// What makes environments with the packages of `--with` for this Python: `uv` or `pip`.
///
/// # Errors
/// When there is neither.
pub fn installer_of(python: &Path, directory: &Path) -> Result<&'static str, LaunchError> {
    let answer = crate::inspect::ask(python, directory)?;
    Installer::find(&answer.base, answer.has_venv, directory).map(|installer| installer.name())
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

    /// The steps that fill `folder`. What is installed is compiled as well: a program cannot write to its environment, so that
    /// it would compile torch again in each run.
    fn commands(&self, base: &Path, folder: &Path, python: &Path, listed: &Listed) -> Vec<Command> {
        let file = listed.file.iter().flat_map(|file| [OsStr::new("-r"), file.as_os_str()]);
        match self {
            Self::Uv(uv) => {
                let mut make = Command::new(uv);
                make.args(["venv", "--no-project", "--python"]).arg(base).arg(folder);
                let mut fill = Command::new(uv);
                fill.args(["pip", "install", "--python"]).arg(python).arg("--compile-bytecode");
                fill.args(file).arg("--").args(&listed.words);
                vec![make, fill]
            }
            Self::Pip => {
                let mut make = Command::new(base);
                make.args(["-m", "venv"]).arg(folder);
                let mut fill = Command::new(python);
                // pip compiles on one core.
                fill.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile"]);
                fill.args(file).arg("--").args(&listed.words);
                let mut compile = Command::new(python);
                compile.args(["-c", COMPILE]);
                vec![make, fill, compile]
            }
        }
    }

    /// Makes the environment and installs into it. With `fresh`, nothing is taken from the installer's cache.
    pub(crate) fn build(
        &self,
        base: &Path,
        folder: &Path,
        python: &Path,
        requirements: &[String],
        work: &Work<'_>,
        fresh: bool,
    ) -> Result<(), LaunchError> {
        // Passwords do not belong on a command line, which everybody on the machine can read.
        let listed = Listed::of(requirements, folder)?;
        #[cfg(target_os = "linux")]
        let mark = OsString::from(crate::unique_names::random_name());
        // It ends the installer when this process is killed.
        #[cfg(target_os = "linux")]
        let _watchdog = crate::watchdog::Watchdog::over(&mark);
        for mut command in self.commands(base, folder, python, &listed) {
            let lock = work.lock.try_clone().map_err(|source| LaunchError::cache(folder, source))?;
            // The lock file is empty, and as good a standard input as any: an installer that outlives us, or one of its
            // children, holds the lock on, so that nobody takes its unfinished work for his own.
            command.current_dir(work.directory).stdin(Stdio::from(lock));
            if fresh {
                command.env("UV_NO_CACHE", "1").env("PIP_NO_CACHE_DIR", "1");
            }
            #[cfg(target_os = "linux")]
            command.env(crate::watchdog::MARK_VARIABLE, &mark);
            // Variables of another environment, or of a run, must not reach into this one.
            for name in ["VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", paths::RUN_VARIABLE, "UV_PYTHON"] {
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

    /// What is said of an installation whose installer found nothing wrong.
    pub(crate) fn incomplete(&self, file: &Path, requirements: &[String]) -> LaunchError {
        LaunchError::InstallFailed {
            tool: self.name(),
            requirements: shown(requirements),
            reason: format!("{} is missing or damaged after the installation; try again", file.display()),
            details: String::new(),
        }
    }

    fn failed(&self, lines: Vec<String>, folder: &Path, requirements: &[String]) -> LaunchError {
        let lines: Vec<String> = lines.iter().map(|line| without_password(line)).collect();
        let full = ["No space left on device", "Disk quota exceeded", "os error 28", "Errno 28"];
        if lines.iter().any(|line| full.iter().any(|text| line.contains(text))) {
            return LaunchError::DiskFull { path: folder.to_owned(), setting: "OOMPH_CACHE_DIR" };
        }
        let reason = match lines.iter().find_map(|line| complaint(line)) {
            Some(line) => line,
            None if lines.is_empty() => "see its message above".to_owned(),
            None => "its last lines follow".to_owned(),
        };
        let requirements = shown(requirements);
        LaunchError::InstallFailed { tool: self.name(), requirements, reason, details: lines.join("\n") }
    }
}

/// The circumstances of an installation.
pub(crate) struct Work<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) output: InstallerOutput,
    /// The lock of the environment's place.
    pub(crate) lock: File,
}

/// Requirements as they are shown.
fn shown(requirements: &[String]) -> String {
    without_password(&requirements.join(", "))
}

/// The requirements as words of a command. Those with a password are in a file.
struct Listed {
    words: Vec<String>,
    file: Option<PathBuf>,
}

impl Listed {
    fn of(requirements: &[String], folder: &Path) -> Result<Self, LaunchError> {
        let is_secret = |requirement: &&String| without_password(requirement) != **requirement;
        let (secret, open): (Vec<_>, Vec<_>) = requirements.iter().partition(is_secret);
        let words = open.into_iter().cloned().collect();
        if secret.is_empty() {
            return Ok(Self { words, file: None });
        }
        let path = folder.with_extension("requirements");
        let text = secret.iter().map(|line| format!("{line}\n")).collect::<String>();
        write_private(&path, text.as_bytes()).map_err(|source| LaunchError::cache(&path, source))?;
        Ok(Self { words, file: Some(path) })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            let _ = std::fs::remove_file(path);
        }
    }
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
    fn what_is_installed_is_compiled() {
        let listed = Listed { words: vec!["torch==2.15.0".to_owned()], file: None };
        let uv = Installer::Uv("uv".into());
        let commands = uv.commands("python3".as_ref(), "/e".as_ref(), "/e/bin/python".as_ref(), &listed);
        let words: Vec<_> = commands[1].get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words, ["pip", "install", "--python", "/e/bin/python", "--compile-bytecode", "--", "torch==2.15.0"]);
    }

    #[test]
    fn passwords_are_on_no_command_line() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let environment = folder.path().join("e");
        let requirements = ["six".to_owned(), "pkg @ https://me:pw@host/pkg.whl".to_owned()];
        let listed = Listed::of(&requirements, &environment).unwrap();
        let commands = Installer::Uv("uv".into()).commands("p".as_ref(), &environment, "p".as_ref(), &listed);
        assert!(!format!("{commands:?}").contains("pw@"), "{commands:?}");
        let file = listed.file.clone().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "pkg @ https://me:pw@host/pkg.whl\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        drop(listed);
        assert!(!file.exists());
        let error = Installer::Pip.failed(vec!["ERROR: no https://me:pw@host/x".into()], &environment, &requirements);
        assert!(!format!("{error:?} {error}").contains("me:pw"), "{error:?}");
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

//! Finds the program that a command names, and determines its kind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::LaunchError;

/// What kind of program a file is, as far as its first bytes show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramKind {
    /// A Python interpreter, or a script that names one in its first line.
    Python {
        /// The interpreter that will run.
        interpreter: PathBuf,
    },
    /// Machine code.
    Binary,
    /// Anything else: a shell script, a wrapper.
    Other,
}

/// Finds a program as `execvp` does: a name with a slash is a path, others are looked up on `path`.
pub fn find_program(name: &OsStr, directory: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    if is_path(name) {
        let found = directory.join(name);
        return found.is_file().then_some(found);
    }
    let folders = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    folders.into_iter().map(|folder| directory.join(folder).join(name)).find(|file| is_executable(file))
}

pub(crate) fn is_path(name: &OsStr) -> bool {
    name.as_encoded_bytes().contains(&b'/')
}

#[cfg(unix)]
pub(crate) fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
pub(crate) fn is_executable(file: &Path) -> bool {
    file.is_file()
}

/// Whether a name is that of a Python interpreter: `python`, `python3`, `python3.11`, `pypy3`.
pub(crate) fn is_python_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let Some(version) = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy")) else { return false };
    // A trailing letter names an ABI: python3.13t has no global lock, python3d is a debug build.
    let version = version.trim_end_matches(['t', 'd', 'm']);
    version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

impl ProgramKind {
    /// Looks at a program. A file that cannot be read is [`ProgramKind::Other`]: starting it gives a better error.
    pub fn of(program: &Path, directory: &Path, path: Option<&OsStr>) -> Self {
        if program.file_name().is_some_and(is_python_name) {
            return Self::Python { interpreter: program.to_owned() };
        }
        let mut start = Vec::new();
        let read = File::open(program).and_then(|file| file.take(4096).read_to_end(&mut start));
        if read.is_err() {
            return Self::Other;
        }
        if start.starts_with(b"\x7fELF") {
            return Self::Binary;
        }
        match script_interpreter(&start).and_then(|name| find_program(&name, directory, path)) {
            Some(interpreter) => Self::Python { interpreter },
            None => Self::Other,
        }
    }
}

/// The Python that a script asks for, as it writes it.
fn script_interpreter(start: &[u8]) -> Option<OsString> {
    let text = String::from_utf8_lossy(start);
    let mut lines = text.lines();
    let first = lines.next()?.strip_prefix("#!")?.trim();
    let mut words = first.split_ascii_whitespace();
    let program = words.next()?;
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let found = match name(program).as_str() {
        "env" => words.find(|word| !word.starts_with('-') && !word.contains('='))?.to_owned(),
        // pip and uv write this when a path is too long for the first line, or has a space.
        "sh" => {
            let rest = lines.next()?.strip_prefix("'''exec'")?.trim();
            rest.strip_suffix(r#""$0" "$@""#)?.trim().trim_matches(['\'', '"']).to_owned()
        }
        _ => program.to_owned(),
    };
    is_python_name(OsStr::new(&name(&found))).then(|| OsString::from(found))
}

/// The error for a program that was not found. `with` says whether an environment was searched as well.
pub(crate) fn not_found(name: &OsStr, directory: &Path, with: bool) -> LaunchError {
    let program = name.to_string_lossy().into_owned();
    let here = directory.join(name);
    let is_script = here.is_file() && program.ends_with(".py");
    let searched = match (is_path(name), with) {
        (true, _) => format!("in {}", directory.display()),
        (false, true) => "on PATH or in the environment made by --with".to_owned(),
        (false, false) => "on PATH".to_owned(),
    };
    let hint = if is_script {
        format!("to run the script write `python {program}`")
    } else if here.is_file() && !is_path(name) {
        format!("to run the file of that name write `./{program}`")
    } else if is_path(name) {
        "check the path".to_owned()
    } else if with {
        "check the spelling, or add the package that brings it with --with".to_owned()
    } else {
        "check the spelling, or activate the environment that has it".to_owned()
    };
    LaunchError::ProgramNotFound { program, searched, hint }
}

/// The error for a program that was found and could not be started.
#[cfg(target_os = "linux")]
pub(crate) fn spawn_error(program: &Path, error: &io::Error) -> LaunchError {
    let is_python_script = program.extension().is_some_and(|end| end == "py");
    let by_python = format!("to run the script write `python {}`", program.display());
    let (reason, hint) = match error.kind() {
        io::ErrorKind::NotFound if program.exists() => {
            ("the interpreter that its first line names is missing".to_owned(), "correct that line".to_owned())
        }
        io::ErrorKind::NotFound => ("it does not exist".to_owned(), "check the path".to_owned()),
        io::ErrorKind::PermissionDenied if is_python_script => ("it is not executable".to_owned(), by_python),
        io::ErrorKind::PermissionDenied => {
            ("it is not executable".to_owned(), format!("try `chmod +x {}`", program.display()))
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => (
            "it is neither a program of this machine nor a script with a `#!` line".to_owned(),
            if is_python_script { by_python } else { "name the program that is to run it".to_owned() },
        ),
        _ => (error.to_string(), "see whether it runs without oomph".to_owned()),
    };
    LaunchError::NotRunnable { program: program.to_owned(), reason, hint }
}

/// The real path of a file on disk, for comparing; the path itself where that is unknown.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_: io::Error| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_is_known_by_its_name() {
        for name in ["python", "python3", "python3.11", "python3.13t", "pypy3"] {
            assert!(is_python_name(OsStr::new(name)), "{name}");
        }
        for name in ["python-config", "python3-config", "torchrun", "pythonw.exe", "bpython"] {
            assert!(!is_python_name(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn scripts_name_their_python() {
        let named = |text: &str| script_interpreter(text.as_bytes()).map(|name| name.into_string().unwrap());
        assert_eq!(named("#!/opt/v/bin/python3\nimport x"), Some("/opt/v/bin/python3".into()));
        assert_eq!(named("#! /usr/bin/env python3\n"), Some("python3".into()));
        assert_eq!(named("#!/usr/bin/env -S A=1 python -u\n"), Some("python".into()));
        assert_eq!(
            named("#!/bin/sh\n'''exec' '/a b/bin/python' \"$0\" \"$@\"\n' '''\n"),
            Some("/a b/bin/python".into())
        );
        assert_eq!(
            named("#!/bin/sh\n'''exec' /long/bin/python3.12 \"$0\" \"$@\"\n"),
            Some("/long/bin/python3.12".into())
        );
        for other in ["#!/bin/sh\nexec python x", "#!/usr/bin/env bash\n", "import x", "", "#!", "#!/usr/bin/env"] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_missing_is_said_with_a_way_on() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.py"), "").unwrap();
        let text = |name: &str, with| not_found(OsStr::new(name), folder.path(), with).to_string();
        assert!(text("train.py", false).ends_with("write `python train.py`"));
        assert!(text("torchrun", true).contains("--with"));
        assert!(text("pyhton", false).contains("no program `pyhton` on PATH"));
    }
}

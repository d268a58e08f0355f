//! Turns a command line into a program that can be started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::environment::{Environment, EnvironmentRequest};
use crate::home::Home;
use crate::inspect::{PythonFacts, inspect};
use crate::program::{is_path, is_python_name, not_found};
use crate::{CacheDir, InstallerOutput, LaunchError, Problem, ProgramKind, find_program};

/// What is to be run, and with which packages.
pub struct Request<'a> {
    /// The program and its arguments, as typed.
    pub command: &'a [OsString],
    /// The requirements of `--with`; empty means the user's own Python.
    pub with: &'a [String],
    /// The folder to start in.
    pub directory: &'a Path,
    /// Where environments are kept.
    pub cache: &'a CacheDir,
    /// What happens to an installer's messages.
    pub installer_output: InstallerOutput,
    /// Receives what takes time, one line each.
    pub notify: &'a dyn Fn(&str),
}

/// A program that can be started.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The file to start.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The folder to start in.
    pub directory: PathBuf,
    /// What kind of program it is.
    pub kind: ProgramKind,
    /// The environment of `--with`.
    pub environment: Option<Environment>,
    /// The root folder of the virtual environment that oomph was installed into, where programs run in that one.
    pub home: Option<PathBuf>,
    /// What its Python has for GPUs, for a Python program.
    pub python: Option<PythonFacts>,
    /// What will keep it from using the virtual GPU.
    pub problem: Option<Problem>,
}

/// Finds the program, makes its environment if packages were asked for, and looks at what it will run with.
///
/// # Errors
/// When there is no such program, or its environment cannot be made. What the program lacks for the virtual GPU is
/// not an error but [`Prepared::problem`].
pub fn prepare(request: &Request<'_>) -> Result<Prepared, LaunchError> {
    let (name, arguments) = request.command.split_first().ok_or(LaunchError::EmptyCommand)?;
    let home = Home::of_this_process();
    let path = std::env::var_os("PATH");
    let path = home.as_ref().and_then(|home| home.on(path.as_deref())).or(path);
    let outside = find_program(name, request.directory, path.as_deref());
    let base = |file: PathBuf| Prepared {
        kind: ProgramKind::of(&file, request.directory, path.as_deref()),
        program: file,
        arguments: arguments.to_vec(),
        directory: request.directory.to_owned(),
        environment: None,
        home: home.as_ref().and_then(Home::of_programs).map(Path::to_owned),
        python: None,
        problem: None,
    };

    if request.with.is_empty() {
        let program = outside.ok_or_else(|| not_found(name, request.directory, false))?;
        let mut prepared = base(program);
        (prepared.python, prepared.problem) = inspect(&prepared.program, &prepared.kind, request.directory);
        return Ok(prepared);
    }

    let python = base_python(name, outside.as_deref(), request.directory, path.as_deref())?;
    let environment = EnvironmentRequest {
        requirements: request.with,
        base: &python,
        directory: request.directory,
        installer_output: request.installer_output,
        notify: request.notify,
    }
    .make(request.cache)?;
    let program = in_environment(name, &environment).or(outside);
    let program = program.ok_or_else(|| not_found(name, request.directory, true))?;
    // A script that asks for `python3` gets the environment's, because its folder comes first on PATH.
    let inner_path =
        std::env::join_paths([environment.bin()].into_iter().chain(path.iter().flat_map(std::env::split_paths))).ok();
    let mut prepared = base(program);
    prepared.kind = ProgramKind::of(&prepared.program, request.directory, inner_path.as_deref());
    match &prepared.kind {
        // The usual case was looked at when the environment was made.
        ProgramKind::Python { interpreter } if interpreter.starts_with(environment.path()) => {
            prepared.problem = environment.facts().problem();
            prepared.python = Some(environment.facts().clone());
        }
        kind => (prepared.python, prepared.problem) = inspect(&prepared.program, kind, request.directory),
    }
    prepared.environment = Some(environment);
    Ok(prepared)
}

/// The Python to make an environment with: the one that the command names, else the usual one.
fn base_python(
    name: &OsStr,
    found: Option<&Path>,
    directory: &Path,
    path: Option<&OsStr>,
) -> Result<PathBuf, LaunchError> {
    if is_python(name) {
        // A version that was asked for by name is not replaced by another one.
        return found.map(Path::to_owned).ok_or_else(|| not_found(name, directory, false));
    }
    ["python3", "python"]
        .iter()
        .find_map(|usual| find_program(OsStr::new(usual), directory, path))
        .ok_or(LaunchError::NoBasePython)
}

fn is_python(name: &OsStr) -> bool {
    Path::new(name).file_name().is_some_and(is_python_name)
}

/// The environment's program for what was typed. A path to some Python means that version of Python, in the
/// environment; a path to anything else means that file.
fn in_environment(name: &OsStr, environment: &Environment) -> Option<PathBuf> {
    match (is_path(name), is_python(name)) {
        (true, false) => None,
        // uv and venv do not make a `python3.11` for every base; `python` is there always.
        (_, true) => Path::new(name)
            .file_name()
            .and_then(|name| environment.program(name))
            .or_else(|| environment.program(OsStr::new("python"))),
        (false, false) => environment.program(name),
    }
}

//! Identifies a process: its Python, its threads, its user, and whether oomph's hook is inside it.

use std::path::PathBuf;

use crate::elf::Module;
use crate::error::AttachError;
use crate::process::{self, Mapping, Status};

/// A process to attach to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Target {
    /// Its id, as this process counts.
    pub pid: u32,
    /// Its id, as it counts itself.
    pub inner_pid: u32,
    /// Its command line.
    pub command: String,
    /// The real user that it runs as.
    pub uid: u32,
    /// The real group.
    pub gid: u32,
    /// How many threads it has.
    pub threads: usize,
    /// Its Python; `None` where the kernel does not show what it has loaded.
    pub python: Option<Python>,
    /// The run folder of the hook inside it, as the target sees it.
    pub run_folder: Option<PathBuf>,
    /// Its rank in a job, where its variables say one.
    pub rank: Option<u32>,
    /// Whether it was started so that CPython's remote debugging is off.
    pub forbids_remote_debug: bool,
}

/// A Python interpreter in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Python {
    /// The minor version: 11 of 3.11.
    pub minor: u8,
}

impl Target {
    /// Looks at a process. What only its tracer can see is left out where the kernel does not show it.
    ///
    /// # Errors
    /// When there is no such process, or it is known not to run Python.
    pub fn look(pid: u32) -> Result<Self, AttachError> {
        let status = Status::read(&process::folder(pid)).ok_or(AttachError::NoProcess(pid))?;
        let group = status.number("Tgid").and_then(|group| u32::try_from(group).ok()).unwrap_or(pid);
        if group != pid {
            return Err(AttachError::Thread(pid, group));
        }
        if pid == std::process::id() {
            return Err(AttachError::Own(pid));
        }
        if status.state() == 'Z' {
            return Err(AttachError::NoProcess(pid));
        }
        let name = status.text("Name").unwrap_or("?").to_owned();
        let command = process::command(pid).unwrap_or_else(|| name.clone());
        let python = match process::mappings(pid) {
            // Kernels show an empty list to those who may not look.
            Ok(mappings) if !mappings.is_empty() && shows_executable(pid) => {
                Some(python(pid, &mappings).ok_or(AttachError::NotPython(pid, name))?)
            }
            _ => None,
        };
        let environment = process::environment(pid);
        let rank = ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"].iter().find_map(|name| environment.get(*name));
        let disable = |word: &str| word == "disable-remote-debug" || word == "disable_remote_debug";
        Ok(Self {
            pid,
            // One number for each namespace of processes that it is in, the innermost last.
            inner_pid: status.numbers("NSpid").last().copied().unwrap_or(pid),
            uid: status.numbers("Uid").first().copied().unwrap_or(0),
            gid: status.numbers("Gid").first().copied().unwrap_or(0),
            threads: process::threads(pid).len(),
            python,
            run_folder: environment
                .get(oomph_protocol::paths::RUN_VARIABLE)
                .filter(|folder| !folder.is_empty())
                .map(PathBuf::from),
            rank: rank.and_then(|rank| rank.parse().ok()),
            forbids_remote_debug: environment.get("PYTHON_DISABLE_REMOTE_DEBUG").is_some_and(|value| !value.is_empty())
                || command.split([' ', '=']).any(|word| disable(word.trim_start_matches("-X"))),
            command,
        })
    }
}

/// Whether the kernel says which file a process runs; without it a static interpreter cannot be distinguished from
/// others.
fn shows_executable(pid: u32) -> bool {
    std::fs::read_link(process::folder(pid).join("exe")).is_ok()
}

/// The Python among what a process has mapped: its version by the names of its files.
fn python(pid: u32, mappings: &[Mapping]) -> Option<Python> {
    let module = module_mapping(pid, mappings)?;
    let of_module = minor(module.name(), "libpython3.").or_else(|| minor(module.name(), "python3."));
    let of_extension = || mappings.iter().find_map(|mapping| extension_minor(mapping.name()));
    let of_folder = || {
        let exe = std::fs::read_link(process::folder(pid).join("exe")).ok()?;
        minor(exe.file_name()?.to_str()?, "python3.")
    };
    Some(Python { minor: of_module.or_else(of_folder).or_else(of_extension).unwrap_or(0) })
}

/// The mapping of the file that the interpreter is in: a shared libpython, or the executable.
pub(crate) fn module_mapping(pid: u32, mappings: &[Mapping]) -> Option<Mapping> {
    let is_code = |mapping: &&Mapping| mapping.executable && mapping.inode > 0;
    // `libpython3.so` only forwards to the real one.
    let shared = |mapping: &&Mapping| mapping.name().starts_with("libpython3.") && mapping.name() != "libpython3.so";
    if let Some(found) = mappings.iter().filter(is_code).find(shared) {
        return Some(found.clone());
    }
    let exe = std::fs::read_link(process::folder(pid).join("exe")).ok()?;
    let exe = exe.to_string_lossy();
    let exe = exe.trim_end_matches(" (deleted)");
    let found = mappings.iter().filter(is_code).find(|mapping| mapping.path.trim_end_matches(" (deleted)") == exe)?;
    // A program of another name may have Python built in.
    let is_python = found.name().starts_with("python")
        || Module::read(pid, mappings, found).is_some_and(|module| module.address("Py_AddPendingCall").is_some());
    is_python.then(|| found.clone())
}

fn minor(name: &str, before: &str) -> Option<u8> {
    let rest = name.strip_prefix(before)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The version in the name of an extension: `math.cpython-311-x86_64-linux-gnu.so`.
fn extension_minor(name: &str) -> Option<u8> {
    minor(&name[name.find(".cpython-3")? + 1..], "cpython-3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names() {
        assert_eq!(minor("libpython3.11.so.1.0", "libpython3."), Some(11));
        assert_eq!(minor("python3.9", "python3."), Some(9));
        assert_eq!(minor("python3", "python3."), None);
        assert_eq!(extension_minor("math.cpython-313t-x86_64-linux-gnu.so"), Some(13));
        assert_eq!(extension_minor("libc.so.6"), None);
    }

    #[test]
    fn what_is_no_python_is_refused() {
        assert!(matches!(Target::look(std::process::id()), Err(AttachError::Own(_))));
        assert!(matches!(Target::look(u32::MAX), Err(AttachError::NoProcess(_))));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // Until it has become another program, it is this one.
        while std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap().trim() != "sleep" {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let error = Target::look(child.id()).unwrap_err();
        assert!(matches!(&error, AttachError::NotPython(_, name) if name == "sleep"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

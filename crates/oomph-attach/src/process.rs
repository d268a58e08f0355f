//! Reads what `/proc` has about a process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One mapping of a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub offset: u64,
    pub inode: u64,
    /// The path as the target sees it, or a name in square brackets; empty for anonymous memory.
    pub path: String,
}

impl Mapping {
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// The folder of a process.
pub(crate) fn folder(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// Whether a process is there and has not ended; one whose parent does not look has a folder all the same.
pub(crate) fn is_alive(pid: u32) -> bool {
    Status::read(&folder(pid)).is_some_and(|status| !matches!(status.state(), 'Z' | 'X'))
}

/// Reads the mappings of a process.
///
/// # Errors
/// When the kernel does not show them.
pub(crate) fn mappings(pid: u32) -> std::io::Result<Vec<Mapping>> {
    let text = fs::read(folder(pid).join("maps"))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(mapping).collect())
}

fn mapping(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut words = rest.splitn(5, ' ');
    let rights = words.next()?.as_bytes();
    let offset = words.next()?;
    let _device = words.next()?;
    let inode = words.next()?;
    let has = |place: usize, right: u8| rights.get(place) == Some(&right);
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        readable: has(0, b'r'),
        writable: has(1, b'w'),
        executable: has(2, b'x'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        inode: inode.parse().ok()?,
        path: words.next().unwrap_or_default().trim_start().to_owned(),
    })
}

/// The fields of `/proc/PID/status`, or of a thread's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status(BTreeMap<String, String>);

impl Status {
    /// Reads them. `None` where there is no such process.
    pub fn read(folder: &Path) -> Option<Self> {
        Some(Self::parse(&String::from_utf8_lossy(&fs::read(folder.join("status")).ok()?)))
    }

    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.split_whitespace().next()?.parse().ok()
    }

    /// The numbers of a line with several: real, effective, saved and of the file system.
    pub fn numbers(&self, name: &str) -> Vec<u32> {
        self.text(name).unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    pub fn mask(&self, name: &str) -> u64 {
        self.text(name).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
    }

    /// The letter of the state: R, S, D, T, t, Z.
    pub fn state(&self) -> char {
        self.text("State").and_then(|text| text.chars().next()).unwrap_or('?')
    }
}

/// The threads of a process, the main one first.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(folder(pid).join("task")).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    found.sort_by_key(|thread| (*thread != pid, *thread));
    found
}

/// The command line of a process, where it can be read.
pub(crate) fn command(pid: u32) -> Option<String> {
    let bytes = fs::read(folder(pid).join("cmdline")).ok()?;
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let line = words.map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// The variables that a process was started with; empty where the kernel does not show them.
pub fn environment(pid: u32) -> BTreeMap<String, String> {
    let bytes = fs::read(folder(pid).join("environ")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words.filter_map(|word| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    Status::read(&folder(pid))?.number("PPid").and_then(|parent| parent.try_into().ok())
}

/// The processes of the job that a process is a rank of, itself among them: those with the same rendezvous in their
/// variables, or without one the Python children of the same parent.
pub fn siblings(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = job(&environment(pid));
    let own_parent = parent(pid);
    let is_of_job = |other: &u32| {
        if *other == pid {
            return true;
        }
        match &own {
            // Data loaders have the variables too; ranks differ from the process that they were forked by.
            Some(own) => job(&environment(*other)).as_ref().is_some_and(|job| job.0 == own.0 && job.1 != own.1),
            None => own_parent.is_some_and(|own| own > 1) && parent(*other) == own_parent && is_python(*other),
        }
    };
    let mut found: Vec<u32> = all.filter(is_of_job).collect();
    if own.is_some() {
        // Of the processes of one rank the eldest is the rank; the others are its workers.
        let mut seen = std::collections::BTreeSet::new();
        found.sort_unstable();
        let given = found.iter().position(|other| *other == pid).map(|place| found.remove(place));
        found.splice(0..0, given);
        found.retain(|other| job(&environment(*other)).is_some_and(|job| seen.insert(job.1)));
    }
    found.sort_unstable();
    found
}

/// The rendezvous of a rank, and the rank.
fn job(environment: &BTreeMap<String, String>) -> Option<(Vec<String>, String)> {
    let get = |name: &str| environment.get(name).cloned();
    let rank = get("RANK").or_else(|| get("OMPI_COMM_WORLD_RANK")).or_else(|| get("SLURM_PROCID"))?;
    let place = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_STEP_ID"];
    Some((place.iter().map(|name| get(name).unwrap_or_default()).collect(), rank))
}

fn is_python(pid: u32) -> bool {
    let exe = fs::read_link(folder(pid).join("exe")).unwrap_or_default();
    exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_spaces_in_their_paths() {
        let line = "7f00-8f00 r-xp 00001000 fe:00 42                         /opt/my env/libpython3.11.so.1.0";
        let found = mapping(line).unwrap();
        assert_eq!((found.start, found.end, found.offset, found.inode), (0x7f00, 0x8f00, 0x1000, 42));
        assert_eq!((found.readable, found.writable, found.executable), (true, false, true));
        assert_eq!((found.path.as_str(), found.name()), ("/opt/my env/libpython3.11.so.1.0", "libpython3.11.so.1.0"));
        assert_eq!(mapping("7f00-8f00 rw-p 00000000 00:00 0 ").unwrap().path, "");
        assert!(mapping("nonsense").is_none() && mapping("").is_none());
        assert!(mappings(std::process::id()).unwrap().iter().any(|found| found.executable && found.inode > 0));
    }

    #[test]
    fn a_status_is_read() {
        let status =
            Status::parse("State:\tS (sleeping)\nUid:\t1\t2\t3\t4\nCapEff:\t00000000a80425fb\nTracerPid:\t0\n");
        assert_eq!((status.state(), status.numbers("Uid")), ('S', vec![1, 2, 3, 4]));
        assert_eq!(
            (status.mask("CapEff"), status.number("TracerPid"), status.number("x")),
            (0xa804_25fb, Some(0), None)
        );
    }

    #[test]
    fn ranks_are_identified_by_their_rendezvous() {
        let of = |rank: &str, port: &str| {
            job(&[("RANK", rank), ("MASTER_PORT", port)].map(|(name, value)| (name.into(), value.into())).into())
        };
        assert_eq!(of("0", "1").unwrap().0, of("1", "1").unwrap().0);
        assert_ne!(of("0", "1").unwrap().0, of("0", "2").unwrap().0);
        assert!(job(&BTreeMap::new()).is_none());
    }
}

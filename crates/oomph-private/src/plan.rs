//! Plans a view, records what it was made of, and writes both to a file.
//!
//! Both are lists of names and values, each ended by a zero byte, which no path holds. That needs no parser in the
//! programs that this is loaded into, and every path passes unchanged.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use oomph_protocol::paths::{FENCE as FENCE_FILE, VIEW_PLAN as PLAN_FILE};

/// What a private view is to be made of. Paths are absolute, without links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Where the real file system is found: `/`, or where an outer view keeps it.
    pub base: PathBuf,
    /// Where writes are kept that belong on a disk.
    pub disk: PathBuf,
    /// Where writes are kept that belong in memory.
    pub memory: PathBuf,
    /// The record of an outer view, whose writes are seen in this one.
    pub below: Option<PathBuf>,
    /// Keep the real file system reachable, for the views of children. Without it nothing of it is left.
    pub keep_real: bool,
    /// What may be changed for real.
    pub open: Vec<PathBuf>,
    /// Folders of ours that are shown in place of others: first ours, then the place.
    pub instead: Vec<(PathBuf, PathBuf)>,
    /// A program of ours that is shown in a place where the machine has another or none: first ours, then the place.
    pub tool: Option<(PathBuf, PathBuf)>,
    /// Devices that the program must not reach.
    pub hidden: Vec<PathBuf>,
    /// Leave the network: the program reaches nothing but its own processes.
    pub no_network: bool,
    /// Where a program is likely to write, although the folder may belong to somebody else.
    pub likely: Vec<PathBuf>,
    /// The folder that the program starts in.
    pub directory: PathBuf,
    /// The file that says that the view was made, and of what.
    pub record: PathBuf,
    /// No view, but a fence: what is not open can be read only.
    pub fence: bool,
    /// Use a user namespace even where the process could do without.
    pub user: bool,
}

impl Plan {
    /// A path of the plan as the process reaches it that makes the view.
    pub(crate) fn real(&self, path: &Path) -> PathBuf {
        self.base.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The plan as the bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut list = List::default();
        list.add("base", &self.base);
        list.add("disk", &self.disk);
        list.add("memory", &self.memory);
        if let Some(path) = &self.below {
            list.add("below", path);
        }
        for path in &self.open {
            list.add("open", path);
        }
        for (ours, place) in &self.instead {
            list.add("ours", ours);
            list.add("place", place);
        }
        if let Some((ours, place)) = &self.tool {
            list.add("tool", ours);
            list.add("tool-place", place);
        }
        for path in &self.hidden {
            list.add("hidden", path);
        }
        for path in &self.likely {
            list.add("likely", path);
        }
        list.add("directory", &self.directory);
        list.add("record", &self.record);
        if self.keep_real {
            list.add("keep-real", Path::new("yes"));
        }
        if self.user {
            list.add("user", Path::new("yes"));
        }
        if self.fence {
            list.add("fence", Path::new("yes"));
        }
        if self.no_network {
            list.add("no-network", Path::new("yes"));
        }
        list.0
    }

    /// Reads a plan. An entry of an unknown name is an error: a view that lacks something is not a view.
    ///
    /// # Errors
    /// When the bytes are not a plan.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let mut plan = Self::default();
        let (mut ours, mut tool) = (None, None);
        for (name, value) in entries(bytes)? {
            let path = PathBuf::from(value);
            match name {
                b"base" => plan.base = path,
                b"disk" => plan.disk = path,
                b"memory" => plan.memory = path,
                b"below" => plan.below = Some(path),
                b"open" => plan.open.push(path),
                b"ours" => ours = Some(path),
                b"place" => plan.instead.extend(ours.take().map(|ours| (ours, path))),
                b"tool" => tool = Some(path),
                b"tool-place" => plan.tool = tool.take().map(|tool| (tool, path)),
                b"hidden" => plan.hidden.push(path),
                b"fence" => plan.fence = true,
                b"no-network" => plan.no_network = true,
                b"likely" => plan.likely.push(path),
                b"directory" => plan.directory = path,
                b"record" => plan.record = path,
                b"keep-real" => plan.keep_real = true,
                b"user" => plan.user = true,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(plan)
    }
}

/// How a view was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// By a process that may mount.
    Mounting,
    /// In a user namespace, in which everybody may mount.
    UserNamespace,
}

/// What a view was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// How.
    pub made: Made,
    /// Whether the program may write wherever it could without the view. It may not where files belong to a user or a
    /// group that the user namespace does not know.
    pub whole: bool,
    /// The places that are covered by an overlay, with the folder that holds what is written there.
    pub overlays: Vec<(PathBuf, PathBuf)>,
    /// The places that can only be read.
    pub read_only: Vec<PathBuf>,
}

impl Record {
    pub(crate) fn new(made: Made) -> Self {
        Self { made, whole: true, overlays: Vec::new(), read_only: Vec::new() }
    }

    /// The record as the bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut list = List::default();
        let made = match self.made {
            Made::Mounting => "mounting",
            Made::UserNamespace => "user-namespace",
        };
        list.add("made", Path::new(made));
        if self.whole {
            list.add("whole", Path::new("yes"));
        }
        for (place, store) in &self.overlays {
            list.add("overlay", place);
            list.add("store", store);
        }
        for path in &self.read_only {
            list.add("read-only", path);
        }
        list.0
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the bytes are not a record.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let mut record = Self { whole: false, ..Self::new(Made::Mounting) };
        let mut place = None;
        for (name, value) in entries(bytes)? {
            let path = PathBuf::from(value);
            match name {
                b"made" if value == "user-namespace" => record.made = Made::UserNamespace,
                b"whole" => record.whole = true,
                b"overlay" => place = Some(path),
                b"store" => record.overlays.extend(place.take().map(|place| (place, path))),
                b"read-only" => record.read_only.push(path),
                _ => {}
            }
        }
        Ok(record)
    }
}

#[derive(Default)]
struct List(Vec<u8>);

impl List {
    fn add(&mut self, name: &str, value: &Path) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        self.0.extend_from_slice(value.as_os_str().as_bytes());
        self.0.push(0);
    }
}

fn entries(bytes: &[u8]) -> io::Result<Vec<(&[u8], &OsStr)>> {
    let Some(bytes) = bytes.strip_suffix(b"\0") else { return Err(io::ErrorKind::InvalidData.into()) };
    let mut parts = bytes.split(|byte| *byte == 0);
    let mut found = Vec::new();
    while let Some(name) = parts.next() {
        let value = parts.next().ok_or(io::ErrorKind::InvalidData)?;
        found.push((name, OsStr::from_bytes(value)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_and_records_are_read_as_they_were_written() {
        let plan = Plan {
            base: "/".into(),
            disk: "/var/tmp/a b\n".into(),
            memory: "/dev/shm/x".into(),
            below: Some("/run/private".into()),
            keep_real: true,
            open: vec!["/one".into(), "/two,with:marks\\".into()],
            instead: vec![("/ours".into(), "/theirs".into())],
            tool: Some(("/ours/tool".into(), "/usr/bin/tool".into())),
            hidden: vec!["/dev/nvidia0".into()],
            no_network: true,
            likely: vec!["/tmp".into()],
            directory: "/home".into(),
            record: "/record".into(),
            fence: true,
            user: true,
        };
        assert_eq!(Plan::from_bytes(&plan.to_bytes()).unwrap(), plan);
        let record = Record {
            made: Made::UserNamespace,
            whole: false,
            overlays: vec![("/home".into(), "/store/0".into())],
            read_only: vec!["/mnt".into()],
        };
        assert_eq!(Record::from_bytes(&record.to_bytes()).unwrap(), record);
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_refused() {
        assert!(Plan::from_bytes(b"base\0/").is_err());
        assert!(Plan::from_bytes(b"base\0").is_err());
        assert!(Plan::from_bytes(b"").is_err());
        assert!(Plan::from_bytes(b"later\0/x\0").is_err());
    }
}

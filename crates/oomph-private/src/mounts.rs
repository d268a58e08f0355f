//! Reads the mounts of this process from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File systems that hold no files of a user: what is written there is talk with the kernel.
const KERNEL: [&str; 20] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "mqueue",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "bpf",
    "configfs",
    "fusectl",
    "hugetlbfs",
    "efivarfs",
    "binfmt_misc",
    "nsfs",
    "autofs",
    "selinuxfs",
];

/// A mount that can be seen: nothing is mounted over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) place: PathBuf,
    kind: String,
    pub(crate) read_only: bool,
}

impl Mount {
    /// Whether it is an interface of the kernel.
    pub(crate) fn is_kernel(&self) -> bool {
        KERNEL.contains(&self.kind.as_str())
    }

    /// Whether it shows processes.
    pub(crate) fn is_of_processes(&self) -> bool {
        self.kind == "proc"
    }

    /// Whether it holds terminals or queues of messages, and nothing that would stay.
    pub(crate) fn is_talk(&self) -> bool {
        ["devpts", "mqueue"].contains(&self.kind.as_str())
    }
}

/// The mounts below some folder, by their places in it.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    /// The mounts below `base`, which stands for `/`.
    pub(crate) fn below(base: &Path) -> io::Result<Self> {
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?, base))
    }

    fn parse(text: &[u8], base: &Path) -> Self {
        let lines: Vec<Line> = text.split(|byte| *byte == b'\n').filter_map(parse_line).collect();
        let seen = |line: &&Line| line.is_reached(&lines, 0) && !line.is_covered(&lines);
        let below = |line: &Line| {
            let place = Path::new("/").join(line.mount.place.strip_prefix(base).ok()?);
            Some(Mount { place, ..line.mount.clone() })
        };
        Self(lines.iter().filter(seen).filter_map(below).collect())
    }

    /// The mount at a place.
    pub(crate) fn at(&self, place: &Path) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.place == place)
    }

    /// The mounts below a place that are below no other of them, by place.
    pub(crate) fn children(&self, place: &Path) -> Vec<PathBuf> {
        let inside: Vec<&Path> = self.below_place(place).map(|mount| mount.place.as_path()).collect();
        let outermost = |one: &&&Path| !inside.iter().any(|other| other != *one && one.starts_with(other));
        inside.iter().filter(outermost).map(|place| place.to_path_buf()).collect()
    }

    /// All mounts below a place.
    pub(crate) fn below_place(&self, place: &Path) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mount| mount.place != place && mount.place.starts_with(place))
    }
}

/// No table is nested deeper; one that is read while it changes could hold a loop.
const DEEPEST: usize = 256;

/// A line of the table.
struct Line {
    id: u64,
    parent: u64,
    mount: Mount,
}

impl Line {
    /// Whether the place at which this is mounted can be reached: no other mount lies on the way to it.
    fn is_reached(&self, lines: &[Self], depth: usize) -> bool {
        let hides = |other: &Self| {
            other.id != self.id && other.parent == self.parent && self.mount.place.starts_with(&other.mount.place)
        };
        let parent = lines.iter().find(|line| line.id == self.parent && line.id != self.id);
        depth < DEEPEST && !lines.iter().any(hides) && parent.is_none_or(|parent| parent.is_reached(lines, depth + 1))
    }

    /// Whether another mount lies on the very same place.
    fn is_covered(&self, lines: &[Self]) -> bool {
        lines
            .iter()
            .any(|other| other.parent == self.id && other.id != self.id && other.mount.place == self.mount.place)
    }
}

/// `36 35 98:0 /root /place options - type source super-options`, with any number of fields before the dash.
fn parse_line(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let place = PathBuf::from(OsString::from_vec(unescape(fields.nth(2)?)));
    let options = String::from_utf8_lossy(fields.next()?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let super_options = String::from_utf8_lossy(rest.nth(1)?);
    let read_only = [options, super_options].iter().any(|list| list.split(',').any(|option| option == "ro"));
    Some(Line { id, parent, mount: Mount { place, kind, read_only } })
}

/// Spaces, tabs, line ends and backslashes are written as three octal digits behind a backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if *byte == b'\\' => {
                out.push(value);
                rest = behind.get(3..).unwrap_or_default();
            }
            _ => {
                out.push(*byte);
                rest = behind;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        24 27 0:6 / /dev rw shared:2 - devtmpfs devtmpfs rw\n\
        25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw\n\
        27 1 254:0 / / rw,relatime master:1 - ext4 /dev/vda rw,discard\n\
        28 27 0:25 / /mnt/a\\040b ro,nosuid - tmpfs none ro\n\
        29 28 0:26 / /mnt/a\\040b/inner rw - ext4 /dev/vdb rw\n\
        30 25 0:27 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=4k\n\
        31 27 0:28 / /srv/old rw - ext4 /dev/vdc rw\n\
        32 27 0:29 / /srv ro - ext4 /dev/vdd rw\n";

    #[test]
    fn what_is_mounted_over_is_not_seen() {
        let mounts = Mounts::parse(TABLE, Path::new("/"));
        let places: Vec<&str> = mounts.0.iter().map(|mount| mount.place.to_str().unwrap()).collect();
        assert_eq!(places, ["/proc", "/dev", "/", "/mnt/a b", "/mnt/a b/inner", "/dev/shm", "/srv"]);
        assert!(mounts.at(Path::new("/srv")).unwrap().read_only);
        assert!(!mounts.at(Path::new("/dev/shm")).unwrap().read_only);
        assert_eq!(mounts.children(Path::new("/mnt")), [PathBuf::from("/mnt/a b")]);
        assert_eq!(mounts.children(Path::new("/mnt/a b")), [PathBuf::from("/mnt/a b/inner")]);
    }

    #[test]
    fn a_folder_may_stand_for_the_root() {
        let mounts = Mounts::parse(TABLE, Path::new("/mnt"));
        assert!(mounts.at(Path::new("/a b")).unwrap().read_only);
        assert!(mounts.at(Path::new("/dev")).is_none());
        assert_eq!(mounts.children(Path::new("/")), [PathBuf::from("/a b")]);
        assert!(Mounts::parse(TABLE, Path::new("/dev")).at(Path::new("/")).unwrap().is_kernel());
    }
}

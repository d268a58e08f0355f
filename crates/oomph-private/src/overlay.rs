//! One overlay: a folder that is only read, and a store for what is written.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::Made;

/// The folder of a store that holds what was written.
pub(crate) const UPPER: &str = "written";

/// The folder of a store that the kernel works in.
const WORK: &str = "work";

/// What is asked of an overlay, best first. `volatile` leaves out syncing, which would otherwise be of the whole disk
/// and at the end of each run; the store is removed then. Renaming a folder needs `redirect_dir`, which the kernel
/// refuses in a user namespace.
fn options(made: Made) -> &'static [&'static str] {
    match made {
        Made::Mounting => &[
            "redirect_dir=on,metacopy=off,index=off,volatile",
            "redirect_dir=on,metacopy=off,index=off",
            "userxattr,index=off",
        ],
        Made::UserNamespace => &["userxattr,index=off,volatile", "userxattr,index=off", "index=off"],
    }
}

/// A folder for mount points and for a lower layer without entries, on a file system of its own.
pub(crate) struct Frame {
    pub(crate) path: PathBuf,
    made: usize,
}

impl Frame {
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(path.join("empty"))?;
        Ok(Self { path, made: 0 })
    }

    fn another(&mut self) -> io::Result<PathBuf> {
        self.made += 1;
        let path = self.path.join(format!("middle-{}", self.made));
        fs::create_dir(&path)?;
        Ok(path)
    }
}

/// A folder without its content: an overlay is given its number, because a path may hold any of the marks that separate
/// the options.
fn hold(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn named(folder: impl AsFd) -> String {
    format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd())
}

/// Covers `at` by an overlay over `lower`, with `between` in between. What is written goes to `store`.
pub(crate) fn cover(
    frame: &mut Frame,
    made: Made,
    lower: &Path,
    between: Option<&Path>,
    store: &Path,
    at: &Path,
) -> io::Result<()> {
    let (upper, work) = (store.join(UPPER), store.join(WORK));
    fs::create_dir_all(&upper)?;
    fs::create_dir_all(&work)?;
    imitate(lower, &upper);
    let between = between.map(hold).transpose()?;
    let (lower, upper, work) = (hold(lower)?, hold(&upper)?, hold(&work)?);
    let writable = |lower: &OwnedFd, options: &str| {
        let between = between.as_ref().map(|folder| format!("{}:", named(folder))).unwrap_or_default();
        let (lower, upper, work) = (named(lower), named(&upper), named(&work));
        mounted(at, &format!("lowerdir={between}{lower},upperdir={upper},workdir={work},{options}"))
    };
    let mut failure = io::Error::from(io::ErrorKind::Unsupported);
    for options in options(made) {
        match writable(&lower, options) {
            Ok(()) => return Ok(()),
            Err(error) => failure = error,
        }
        // A store may lie below the folder that is covered, which older kernels refuse. An overlay without a store is
        // another file system, of which the store is not part.
        if failure.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
            let middle = frame.another()?;
            let empty = hold(&frame.path.join("empty"))?;
            let reading = options.trim_end_matches(",volatile");
            if mounted(&middle, &format!("lowerdir={}:{},{reading}", named(&lower), named(&empty))).is_ok() {
                match writable(&hold(&middle)?, options) {
                    Ok(()) => return Ok(()),
                    Err(_) => unmount(&middle, UnmountFlags::DETACH)?,
                }
            }
        }
    }
    Err(failure)
}

fn mounted(at: &Path, options: &str) -> io::Result<()> {
    let options = CString::new(options).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(mount("overlay", at, "overlay", MountFlags::NODEV, options.as_c_str())?)
}

/// Gives a folder of ours the rights, the owner and the times of another, as far as can be done: the upper folder of an
/// overlay is what a program sees of it.
pub(crate) fn imitate(real: &Path, ours: &Path) {
    let Ok(metadata) = fs::metadata(real) else { return };
    let _ = std::os::unix::fs::chown(ours, Some(metadata.uid()), Some(metadata.gid()));
    let _ = fs::set_permissions(ours, fs::Permissions::from_mode(metadata.mode() & 0o7777));
    if let (Ok(modified), Ok(folder)) = (metadata.modified(), File::open(ours)) {
        let _ = folder.set_modified(modified);
    }
}

//! Removes folders when this process ends, however it ends.
//!
//! A value that removes its folder on drop covers returns and panics. A signal between two steps runs no
//! destructor, so the thread that receives it removes what is listed here before the process dies of it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Lists a folder for removal.
pub(crate) fn register(folder: &Path) {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned());
}

/// Takes a folder from the list: it is to stay.
pub(crate) fn forget(folder: &Path) {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
}

/// Removes a folder now, and from the list.
pub(crate) fn remove(folder: &Path) {
    remove_folder(folder);
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
}

/// The folders of the list.
#[cfg(target_os = "linux")]
pub(crate) fn registered() -> Vec<PathBuf> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// Removes every folder of the list.
#[cfg(target_os = "linux")]
pub(crate) fn remove_all() {
    let folders = std::mem::take(&mut *FOLDERS.lock().unwrap_or_else(PoisonError::into_inner));
    for folder in folders {
        remove_folder(&folder);
    }
}

/// Removes a folder as thoroughly as can be done; there is nobody to report a failure to.
pub(crate) fn remove_folder(folder: &Path) {
    for attempt in 0..4 {
        match fs::remove_dir_all(folder) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            // A dying process may have written one more file between the listing and the removal.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            #[cfg(target_os = "linux")]
            Err(_) if take_apart::take_apart(folder).is_ok() => return,
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(10 << attempt));
    }
}

#[cfg(target_os = "linux")]
mod take_apart {
    //! Removing what the standard library cannot: folders that not even their owner may change, and folders inside each
    //! other until paths grow too long and open files run out.

    use std::ffi::CString;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat};
    use rustix::io::{Errno, Result};

    /// Moves each folder found to the top, so that no path is ever longer than two names below `folder`. Links are
    /// followed nowhere.
    pub(super) fn take_apart(folder: &Path) -> Result<()> {
        let top = open_for_all(CWD, folder)?;
        let mut moved = 0_u64;
        loop {
            let mut left = 0;
            for name in names(&top)? {
                if !unlinked(&top, &name)? {
                    left += 1;
                    let inner = open_for_all(&top, &*name)?;
                    for below in names(&inner)? {
                        if !unlinked(&inner, &below)? {
                            // Moving a folder changes it, because it holds the entry `..`.
                            open_for_all(&inner, &*below)?;
                            moved += 1;
                            renameat(&inner, &*below, &top, format!(".oomph-moved-{moved}"))?;
                        }
                    }
                    unlinkat(&top, &*name, AtFlags::REMOVEDIR)?;
                }
            }
            if left == 0 {
                return unlinkat(CWD, folder, AtFlags::REMOVEDIR);
            }
        }
    }

    /// Opens a folder, of which its owner may change everything from now on.
    fn open_for_all(at: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(at, name, flags | OFlags::PATH, Mode::empty())?;
        // By what is held, because a name could be another's by now.
        let itself = format!("/proc/self/fd/{}", held.as_raw_fd());
        chmod(&itself, Mode::RWXU)?;
        openat(&held, c".", flags, Mode::empty())
    }

    fn names(folder: &OwnedFd) -> Result<Vec<CString>> {
        let names = Dir::read_from(folder)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        names.filter(|name| name.as_ref().map_or(true, |name| **name != *c"." && **name != *c"..")).collect()
    }

    /// Removes a name; says false of a folder.
    fn unlinked(folder: &OwnedFd, name: &CString) -> Result<bool> {
        match unlinkat(folder, &**name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::ISDIR) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_folders_are_removed_and_links_not_followed() {
        use std::os::unix::fs::PermissionsExt;
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("a/b/file"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join("link")).unwrap();
        fs::set_permissions(folder.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
        remove_folder(&folder);
        assert!(!folder.exists());
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn folders_inside_each_other_without_end_are_removed() {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let mut held = openat(CWD, &folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
        // More than files can be open at once, and longer than a path can be.
        for depth in 0..3000 {
            mkdirat(&held, "inside", Mode::RWXU).unwrap();
            let inner = openat(&held, "inside", OFlags::DIRECTORY, Mode::empty()).unwrap();
            rustix::fs::symlinkat(outside.path(), &inner, "link").unwrap();
            if depth % 100 == 0 {
                rustix::fs::fchmod(&held, Mode::RUSR | Mode::XUSR).unwrap();
            }
            held = inner;
        }
        remove_folder(&folder);
        assert!(!folder.exists());
        assert!(outside.path().join("kept").exists());
    }
}

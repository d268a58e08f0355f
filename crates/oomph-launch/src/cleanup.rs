//! Folders that must be gone when this process ends, however it ends.
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
            // A program may have made folders that not even their owner may change.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => make_writable(folder),
            // A dying process may have written one more file between the listing and the removal.
            Err(_) => std::thread::sleep(Duration::from_millis(10 << attempt)),
        }
    }
}

/// Gives the owner back the right to change the folders below `folder`.
fn make_writable(folder: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        // The type of the entry itself: a link to a folder elsewhere is not followed.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
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
}

//! Finds folders of this user below folders of others, such as `/data/projects/me`.
//!
//! When something is written in a folder for the first time, the kernel copies every folder on the path to it into the
//! overlay, each with its owner. In a user namespace it can give nothing to a user that the namespace does not know,
//! and fails. So the view needs to know such folders beforehand. A look at the first levels of the file system finds
//! most of them.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{getegid, geteuid};

/// Folders are looked for this many levels below the root.
const DEEPEST: usize = 4;

/// No more entries than this are looked at: the first levels of some machines hold a folder of each of thousands of users.
const MOST: usize = 4096;

/// Folders of the system, in which a user has none.
const SYSTEM: [&str; 12] =
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "lost+found", "proc", "sbin", "sys", "usr"];

/// Finds the folders below `base`, which stands for `/`, that this user can write to. What is below one of this user's own is
/// not looked at.
pub(crate) fn folders(base: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut looked = 0;
    let mut open = VecDeque::from([(PathBuf::from("/"), 0)]);
    while let Some((path, depth)) = open.pop_front() {
        let real = base.join(path.strip_prefix("/").unwrap_or(&path));
        for entry in fs::read_dir(real).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_folder || (depth == 0 && SYSTEM.iter().any(|known| name == *known)) {
                continue;
            }
            looked += 1;
            if looked > MOST {
                return found;
            }
            // The path to what lies below a folder of this user's can be copied.
            if !entry.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw()) && depth + 1 < DEEPEST {
                open.push_back((path.join(&name), depth + 1));
            }
            if access(entry.path(), Access::WRITE_OK).is_ok() {
                found.push(path.join(name));
            }
        }
    }
    found
}

/// Whether what lies in a folder, as far as this user can write to it, belongs to the user and the user's own group. In a
/// folder that is open to everybody each has files of their own; in one of another group's, the group has them.
pub(crate) fn is_own(folder: &Path) -> bool {
    let Ok(metadata) = fs::metadata(folder) else { return true };
    let own = (metadata.uid(), metadata.gid()) == (geteuid().as_raw(), getegid().as_raw());
    own || metadata.mode() & 0o002 != 0 || access(folder, Access::WRITE_OK).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_can_be_written_to_are_found_outside_the_system() {
        let found = folders(Path::new("/"));
        // `/` belongs to root, who needs none; everybody writes to this one.
        assert_eq!(found.contains(&PathBuf::from("/tmp")), access("/tmp", Access::WRITE_OK).is_ok());
        assert!(!found.iter().any(|path| path.starts_with("/usr") || path.starts_with("/proc")), "{found:?}");
        assert!(is_own(Path::new("/tmp")) && is_own(Path::new("/nowhere at all")));
    }

    #[test]
    fn what_is_below_a_folder_of_this_users_is_not_looked_at() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("data/me/inner")).unwrap();
        fs::create_dir_all(base.path().join("usr/me")).unwrap();
        std::os::unix::fs::symlink("/", base.path().join("link")).unwrap();
        assert_eq!(folders(base.path()), [PathBuf::from("/data")]);
        assert!(is_own(&base.path().join("data")));
    }
}

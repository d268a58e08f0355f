//! Makes files and folders that belong to this user alone, and checks the rights on them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Makes a folder that nobody else can look into.
#[cfg_attr(not(unix), expect(unused_mut, reason = "other systems have no such mode"))]
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Writes a file that nobody else can read.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(content)
}

/// Takes rights from a folder of ours, except for these. Some file systems know no rights.
pub(crate) fn close(path: &Path, kept: u32) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if let Ok(found) = fs::metadata(path)
            && is_mine(&found)
            && has_rights(&found, 0o777 & !kept)
        {
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(found.permissions().mode() & kept));
        }
    }
    #[cfg(not(unix))]
    let _ = (path, kept);
}

/// Whether a folder is ours, and nobody else's.
pub(crate) fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && is_mine(&found) && !has_rights(&found, 0o077))
}

/// Whether nobody else can make files in a folder.
pub(crate) fn only_we_write(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && is_mine(&found) && !has_rights(&found, 0o022))
}

/// Whether something has one of these rights, which are bits of its mode.
#[cfg(unix)]
pub(crate) fn has_rights(found: &fs::Metadata, rights: u32) -> bool {
    std::os::unix::fs::MetadataExt::mode(found) & rights != 0
}

#[cfg(not(unix))]
pub(crate) fn has_rights(_found: &fs::Metadata, _rights: u32) -> bool {
    false
}

/// Whether something belongs to this user.
#[cfg(unix)]
pub(crate) fn is_mine(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(metadata) == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
pub(crate) fn is_mine(_metadata: &fs::Metadata) -> bool {
    true
}

//! Makes names that no other process gives: of run folders, and of what is made next to its place and moved there.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
#[cfg(target_os = "linux")]
use std::path::Path;

/// A name for a folder that is to be gone when this process is.
pub(crate) fn fresh_name() -> String {
    format!("oomph-{}-{}", std::process::id(), random_name())
}

/// A name that nobody else has: the standard library seeds its hash maps from the system's randomness.
pub(crate) fn random_name() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Whether a path has the name of a run folder.
#[cfg(target_os = "linux")]
pub(crate) fn is_run_folder(path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_fresh_name(&name.to_string_lossy()))
}

/// Whether a name was made by [`fresh_name`].
pub(crate) fn is_fresh_name(name: &str) -> bool {
    let Some((pid, random)) = name.strip_prefix("oomph-").and_then(|rest| rest.split_once('-')) else { return false };
    pid.parse::<u32>().is_ok() && random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
}

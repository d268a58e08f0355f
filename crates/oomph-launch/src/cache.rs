//! Locates the cache, which keeps environments and runtime files between runs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::LaunchError;
use crate::permissions::{close, has_rights, is_mine, make_private};

/// What backup programs look for before they skip a folder (https://bford.info/cachedir/).
const CACHE_TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is oomph's cache. It can be removed at any time.\n";

/// The cache folder. Everything in it can be made again.
#[derive(Debug, Clone)]
pub struct CacheDir {
    root: PathBuf,
}

impl CacheDir {
    /// The user's cache: `$OOMPH_CACHE_DIR`, or `$XDG_CACHE_HOME/oomph`, or `~/.cache/oomph`. It is made if need be.
    ///
    /// # Errors
    /// When no variable names a place, or the place cannot be used.
    pub fn locate() -> Result<Self, LaunchError> {
        let root = choose(|name| std::env::var_os(name)).ok_or(LaunchError::NoCacheDir)?;
        let cache = Self::at(root)?;
        // A folder that the user named may be shared on purpose.
        if std::env::var_os("OOMPH_CACHE_DIR").is_none_or(|value| value.is_empty()) {
            close(&cache.root, 0o700);
        }
        Ok(cache)
    }

    /// A cache in a folder of the caller's choice. It is made if need be.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn at(root: impl Into<PathBuf>) -> Result<Self, LaunchError> {
        let root = root.into();
        // Paths from here end up in environment variables of programs that may change their folder.
        let root = std::path::absolute(&root).map_err(|source| LaunchError::cache(&root, source))?;
        make(&root)?;
        let tag = root.join("CACHEDIR.TAG");
        if !tag.exists() {
            // A cache without the tag is as good: the folder may be a shared one that is already filled and read-only.
            let _ = fs::write(&tag, CACHE_TAG);
        }
        Ok(Self { root })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Where the bytecode of libraries is kept that were installed without, made if need be; `None` where it cannot be.
    pub fn bytecode(&self) -> Option<PathBuf> {
        self.folder("compiled").ok()?;
        self.folder("compiled/bytecode").ok()
    }

    /// A folder in the cache, made if need be.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, LaunchError> {
        let path = self.root.join(name);
        make(&path)?;
        Ok(path)
    }
}

/// Makes a folder that nobody else can look into. One that is there keeps its rights, unless everybody could put code
/// into it.
fn make(path: &Path) -> Result<(), LaunchError> {
    let failed = |source| LaunchError::cache(path, source);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match make_private(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::metadata(path).map_err(failed)?;
    if !found.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    if has_rights(&found, 0o002) {
        if !is_mine(&found) {
            return Err(LaunchError::CacheOpen { path: path.to_owned() });
        }
        close(path, 0o775);
    }
    Ok(())
}

/// The rule by which the cache is found; apart from the process's environment, so that it can be tested.
fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("OOMPH_CACHE_DIR")
        // The XDG specification says that relative paths are to be ignored.
        .or_else(|| named("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("oomph")))
        .or_else(|| named("HOME").or_else(|| named("USERPROFILE")).map(|path| path.join(".cache").join("oomph")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)]) -> Option<PathBuf> {
        choose(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_most_specific_variable_wins() {
        assert_eq!(
            chosen(&[("OOMPH_CACHE_DIR", "/o"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]),
            Some(PathBuf::from("/o"))
        );
        assert_eq!(chosen(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), Some(PathBuf::from("/x/oomph")));
        assert_eq!(chosen(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]), Some(PathBuf::from("/h/.cache/oomph")));
        assert_eq!(chosen(&[("OOMPH_CACHE_DIR", ""), ("HOME", "/h")]), Some(PathBuf::from("/h/.cache/oomph")));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn nobody_else_looks_into_a_new_cache_or_writes_into_an_old_one() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let parent = tempfile::tempdir().unwrap();
        let new = CacheDir::at(parent.path().join("a/new")).unwrap();
        assert_eq!((mode(new.path()), mode(&new.folder("runtime").unwrap())), (0o700, 0o700));
        let old = parent.path().join("old");
        fs::create_dir(&old).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o777)).unwrap();
        CacheDir::at(&old).unwrap();
        assert_eq!(mode(&old), 0o775);
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = CacheDir::at(file.join("cache")).unwrap_err().to_string();
        assert!(error.contains("cannot be used") && error.contains("OOMPH_CACHE_DIR"), "{error}");
        assert!(!error.contains('\n'));
    }
}

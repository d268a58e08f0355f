//! Provides a cuDNN that answers without a GPU, for programs whose own is too old for that.
//!
//! cuDNN can be asked for its workspaces without a GPU since version 9.8. A program with an older one is answered by a
//! newer library that lies in one of oomph's own environments, if there is one; the report says so.

use std::fs;
use std::path::{Path, PathBuf};

use crate::environment::MARKER;
use crate::{CacheDir, lease};

/// The first version that answers without a GPU.
const FIRST: (u32, u32) = (9, 8);

/// The cuDNN in the environments of the cache that answers without a GPU and is the nearest to those that do not: they
/// are all older, so it is the oldest one.
#[must_use]
pub fn nearest_cudnn(cache: &CacheDir) -> Option<PathBuf> {
    let environments = folders(&cache.path().join("environments"));
    let found = environments.iter().flat_map(|environment| {
        // The environment lies in a folder next to its marker; others are half-made and have no marker.
        let whole = environment.join(MARKER).is_file();
        let inner = if whole { folders(environment) } else { Vec::new() };
        let pythons: Vec<PathBuf> = inner.iter().flat_map(|inner| folders(&inner.join("lib"))).collect();
        pythons.into_iter().filter_map(move |python| {
            in_packages(&python.join("site-packages")).map(|(version, path)| (version, path, environment))
        })
    });
    let (_, path, environment) = found.min()?;
    // To be asked is to be used: the environment stays for another while.
    lease::touch(&lease::lock_path(environment));
    Some(path)
}

/// The folders in a folder; none where it cannot be read.
fn folders(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).map_or_else(|_| Vec::new(), |entries| entries.flatten().map(|entry| entry.path()).collect())
}

/// The cuDNN of a `site-packages` folder with its version, from the name of its metadata.
fn in_packages(packages: &Path) -> Option<(Vec<u32>, PathBuf)> {
    let library = packages.join("nvidia/cudnn/lib/libcudnn.so.9");
    let version = folders(packages).iter().find_map(|path| version_of(path.file_name()?.to_str()?))?;
    let answers = matches!(version.as_slice(), [major, minor, ..] if (*major, *minor) >= FIRST);
    (answers && library.is_file()).then_some((version, library))
}

/// The version in a name such as `nvidia_cudnn_cu13-9.26.0.51.dist-info`.
fn version_of(name: &str) -> Option<Vec<u32>> {
    let version = name.strip_prefix("nvidia_cudnn_cu")?.strip_suffix(".dist-info")?.split_once('-')?.1;
    version.split('.').map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_names_of_metadata() {
        assert_eq!(version_of("nvidia_cudnn_cu13-9.26.0.51.dist-info"), Some(vec![9, 26, 0, 51]));
        assert_eq!(version_of("nvidia_cudnn_cu12-9.dist-info"), Some(vec![9]));
        assert_eq!(version_of("nvidia_cublas-13.4.dist-info"), None);
        assert_eq!(version_of("nvidia_cudnn_cu12-9.x.dist-info"), None);
    }

    #[test]
    fn the_oldest_that_answers_is_chosen() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        for (name, version) in [("old", "9.1.0.70"), ("new", "9.26.0.51"), ("newer", "9.9.0.1")] {
            let place = root.path().join("environments").join(name);
            let packages = place.join("oomph-1-0123456789abcdef/lib/python3.11/site-packages");
            fs::create_dir_all(packages.join("nvidia/cudnn/lib"))?;
            fs::write(packages.join("nvidia/cudnn/lib/libcudnn.so.9"), "")?;
            fs::write(place.join(MARKER), "{}")?;
            fs::create_dir(packages.join(format!("nvidia_cudnn_cu12-{version}.dist-info")))?;
        }
        let cache = CacheDir::at(root.path()).map_err(std::io::Error::other)?;
        let found = nearest_cudnn(&cache).unwrap_or_default();
        assert!(found.starts_with(root.path().join("environments/newer")), "{}", found.display());
        Ok(())
    }
}

//! What version a library says that it is. Frameworks refuse one that is older than what they were built for.
//!
//! The user's own libraries are mapped although the preloaded symbols precede them, but they are not asked: their
//! functions call each other, which would come back here. Their files say it too: the name that a library's link leads
//! to, or the folder `nvidia_cublas-13.4.1.3.dist-info` that pip leaves next to a package.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

pub use crate::gpu::Version;
use crate::gpu::gpu;
use crate::loader;

/// A library whose version is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// How its file name begins, up to the version.
    pub prefix: &'static str,
    /// Its package without `nvidia_` and the CUDA series.
    pub package: &'static str,
    /// What to say where nothing is found, by the major version of CUDA: the newest of that series, 11 to 13.
    pub known: [Version; 3],
}

/// The version of the user's own library, or else the newest one of the CUDA series in use.
pub fn of(library: Library) -> Version {
    let file = loader::mapped_library(library.prefix).map(PathBuf::from);
    let named = file.as_deref().and_then(|file| of_file(file, library.prefix));
    named.or_else(|| of_package(library.package)).unwrap_or_else(|| {
        let [eleven, twelve, thirteen] = library.known;
        match loader::runtime_major() {
            ..=11 => eleven,
            12 => twelve,
            _ => thirteen,
        }
    })
}

/// Reads `13.4.1` and what may follow.
fn parse(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(str::parse::<c_int>);
    let mut next = || parts.next().and_then(Result::ok);
    Some([next()?, next()?, next()?])
}

/// The version at the end of the name of the file that a link leads to.
fn of_file(file: &Path, prefix: &str) -> Option<Version> {
    parse(file.canonicalize().ok()?.file_name()?.to_str()?.strip_prefix(prefix)?)
}

/// The version of a package in the Python environment that this process loaded something from.
fn of_package(package: &str) -> Option<Version> {
    let folder = packages()?;
    let names = std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<Version> = names.filter_map(|name| version_in(&name, package)).collect();
    // An environment may hold the packages of several CUDA series; the one in use is not older than the others.
    found.sort_unstable();
    found.pop()
}

/// The version in the name of a folder that pip left for this package, with or without a CUDA series.
fn version_in(name: &str, package: &str) -> Option<Version> {
    let (name, version) = name.strip_suffix(".dist-info")?.strip_prefix("nvidia_")?.split_once('-')?;
    let series = name.strip_prefix(package)?;
    if series.is_empty() || series.starts_with("_cu") { parse(version) } else { None }
}

/// The folder of the Python packages that something in this process was loaded from.
fn packages() -> Option<&'static Path> {
    gpu()
        .libraries
        .packages
        .get_or_init(|| {
            // The kernel's list can hold names that are not UTF-8.
            let maps = String::from_utf8_lossy(&std::fs::read("/proc/self/maps").ok()?).into_owned();
            maps.lines().find_map(|line| {
                let path = line.get(line.find('/')?..)?;
                let end = ["/site-packages/", "/dist-packages/"]
                    .iter()
                    .find_map(|folder| path.find(folder).map(|at| at + folder.len()))?;
                path.get(..end).map(PathBuf::from)
            })
        })
        .as_deref()
}

/// Defines a function that finds a library's version once.
macro_rules! library_version {
    ($library:ident, $prefix:literal, $package:literal, $eleven:expr, $twelve:expr, $thirteen:expr) => {
        fn version() -> $crate::cublas::versions::Version {
            let versions = &$crate::gpu::gpu().libraries.versions;
            *versions[$crate::gpu::Library::$library as usize].get_or_init(|| {
                $crate::cublas::versions::of($crate::cublas::versions::Library {
                    prefix: $prefix,
                    package: $package,
                    known: [$eleven, $twelve, $thirteen],
                })
            })
        }
    };
}
pub(crate) use library_version;

/// The number that the `GetProperty` functions call by this type: 0 major, 1 minor, 2 patch.
pub fn property(version: Version, kind: c_int) -> Option<c_int> {
    version.get(usize::try_from(kind).ok()?).copied()
}

/// The number of the CUDA runtime, as `cudaRuntimeGetVersion` has it, that the libraries were built for.
pub fn runtime_number() -> usize {
    *gpu().libraries.runtime_number.get_or_init(|| {
        let major = loader::runtime_major() as c_int;
        // CUDA 11 and 12 have no package without a patch level; its minor part is what counts.
        let minor = of_package("cuda_runtime").filter(|[of, ..]| *of == major).map_or(0, |[_, minor, _]| minor);
        usize::try_from(major * 1000 + minor * 10).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_says_the_newest_of_its_series() {
        let library = Library {
            prefix: "libno-such-library.so.",
            package: "no_such",
            known: [[11, 1, 0], [12, 2, 0], [13, 3, 0]],
        };
        // No CUDA runtime is mapped into a test program, which counts as 13.
        assert_eq!(of(library), [13, 3, 0]);
        assert_eq!(property([13, 3, 1], 2), Some(1));
        assert_eq!(property([13, 3, 1], 3), None);
        assert_eq!(property([13, 3, 1], -1), None);
    }

    #[test]
    fn versions_are_read_from_the_names_of_folders() {
        assert_eq!(version_in("nvidia_cublas-13.4.1.3.dist-info", "cublas"), Some([13, 4, 1]));
        assert_eq!(version_in("nvidia_cusparse_cu12-12.5.10.65.dist-info", "cusparse"), Some([12, 5, 10]));
        assert_eq!(version_in("nvidia_cusparselt_cu12-0.7.1.dist-info", "cusparse"), None);
        assert_eq!(version_in("nvidia_cusparselt_cu12-0.7.1.dist-info", "cusparselt"), Some([0, 7, 1]));
        assert_eq!(version_in("nvidia_cublas-broken.dist-info", "cublas"), None);
        assert_eq!(parse("12.4"), None);
    }
}

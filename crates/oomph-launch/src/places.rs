//! Places outside the program's own folder that a program writes to: caches, temporary files, compiled kernels.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variables that name a cache of downloads.
const DOWNLOADS: [&str; 8] = [
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_CACHE",
    "HF_DATASETS_CACHE",
    "TORCH_HOME",
    "KERAS_HOME",
    "NLTK_DATA",
];

/// Caches of downloads in the home folder.
const DOWNLOADS_AT_HOME: [&str; 4] = [".cache/huggingface", ".cache/torch", ".keras", "nltk_data"];

/// Where temporary files go.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn home() -> Option<PathBuf> {
    named("HOME")
}

fn real(path: PathBuf) -> Option<PathBuf> {
    // A place that is as good as everything is no cache.
    std::fs::canonicalize(path).ok().filter(|path| path.components().count() > 2)
}

/// What a program may change for real although its writes are kept private: our own cache, and what libraries
/// download, which would otherwise be downloaded again in each run.
pub(crate) fn open(cache: &Path) -> Vec<PathBuf> {
    let at_home = DOWNLOADS_AT_HOME.iter().filter_map(|name| Some(home()?.join(name)));
    let in_cache = named("XDG_CACHE_HOME").map(|folder| folder.join("huggingface"));
    let variables = DOWNLOADS.iter().filter_map(|name| named(name));
    variables.chain(at_home).chain(in_cache).chain([cache.to_owned()]).filter_map(real).collect()
}

/// Folders of our cache for the kernels that compilers make, and where the compilers look for them. A run finds those of
/// earlier runs, and the user's own caches are not touched.
pub(crate) fn compiled(cache: &Path) -> Vec<(PathBuf, PathBuf)> {
    let folder = |name: &str| {
        let path = cache.join("compiled").join(name);
        std::fs::create_dir_all(&path).ok().and_then(|()| std::fs::canonicalize(path).ok())
    };
    // Inductor names its folder after the user, as Python finds the name.
    let user = ["LOGNAME", "USER", "LNAME", "USERNAME"].iter().find_map(std::env::var_os);
    let temporary = std::env::temp_dir();
    let by_user = user.filter(|user| !user.as_encoded_bytes().contains(&b'/')).map(|user| {
        let mut name = OsString::from("torchinductor_");
        name.push(user);
        temporary.join(name)
    });
    let inductor = named("TORCHINDUCTOR_CACHE_DIR").or(by_user);
    let triton = named("TRITON_CACHE_DIR").or_else(|| Some(home()?.join(".triton/cache")));
    let pairs = [("inductor", inductor), ("triton", triton)];
    pairs.into_iter().filter_map(|(name, place)| Some((folder(name)?, place?))).collect()
}

/// The devices by which a real NVIDIA card is reached (`/dev/dxg` in WSL2). A dry run is not to use one, and a child that
/// lost the preload would.
pub(crate) fn real_cards() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_card = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        name == "dxg" || name.as_encoded_bytes().starts_with(b"nvidia")
    };
    entries.filter(is_card).map(|entry| entry.path()).collect()
}

/// Where a program is likely to write, whoever the folders belong to.
pub(crate) fn likely(directory: &Path) -> Vec<PathBuf> {
    let temporary = TEMPORARY.iter().map(PathBuf::from).chain([std::env::temp_dir()]);
    temporary.chain(home()).chain([directory.to_owned()]).filter_map(|path| std::fs::canonicalize(path).ok()).collect()
}

/// Whether nobody wants to be told that a program wrote here: temporary files that it made itself and caches.
pub(crate) fn is_unimportant(path: &Path) -> bool {
    let in_temporary = TEMPORARY.iter().any(|folder| path.parent() == Some(Path::new(folder)))
        || path.parent() == Some(&std::env::temp_dir());
    let cache = path.file_name().is_some_and(|name| {
        ["__pycache__", ".cache", ".triton", ".nv", "site-packages", "dist-packages"].iter().any(|cache| name == *cache)
    });
    // A folder that was there before is somebody's, and so is what is written into it.
    cache || (in_temporary && !path.exists())
}

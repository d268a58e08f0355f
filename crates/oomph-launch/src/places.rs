//! Lists the places outside the program's own folder that a program writes to: caches, temporary files, compiled
//! kernels.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
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

/// Folders of our cache that runs add to.
const OURS: [&str; 2] = ["runtime", "compiled"];

/// No more paths than this are taken from arguments and variables.
const MOST_NAMED: usize = 256;

/// Where temporary files go.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn home() -> Option<PathBuf> {
    named("HOME")
}

/// What a program may change for real although its writes are kept private: what our cache keeps of earlier runs, and what
/// libraries download, which would otherwise be downloaded again in each run. Environments are not: a program that
/// installs a package would change the next run's.
pub(crate) fn open(cache: &Path, directory: &Path) -> Vec<PathBuf> {
    let kept = [directory.to_owned()].into_iter().chain(home());
    let kept: Vec<_> = kept.filter_map(|path| std::fs::canonicalize(path).ok()).collect();
    // A folder that holds the home folder or the program is not a cache, whatever a variable says.
    let is_cache = |path: &PathBuf| path.components().count() > 2 && !kept.iter().any(|kept| kept.starts_with(path));
    let real = |path: PathBuf| std::fs::canonicalize(path).ok().filter(is_cache);
    let ours = OURS.iter().map(|name| cache.join(name));
    let at_home = DOWNLOADS_AT_HOME.iter().filter_map(|name| Some(home()?.join(name)));
    let in_cache = named("XDG_CACHE_HOME").map(|folder| folder.join("huggingface"));
    let variables = DOWNLOADS.iter().filter_map(|name| named(name));
    variables
        .chain(at_home)
        .chain(in_cache)
        .filter_map(real)
        .chain(ours.filter_map(|path| std::fs::canonicalize(path).ok()))
        .collect()
}

/// Folders of our cache for what compilers make, and where the compilers look for it: kernels, and what vLLM knows of a
/// model's class, which takes it half a minute to find. A run finds those of earlier runs, and the user's own caches are
/// not touched.
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
    let vllm = named("VLLM_CACHE_ROOT")
        .or_else(|| Some(named("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")))?.join("vllm")));
    // What vLLM compiles is not kept: an engine that finds it measures another peak (0.66 GiB where one that compiles measures
    // 0.90), and gives the difference to its cache. The answer must not depend on what was run before.
    let models = vllm.map(|vllm| vllm.join("modelinfos"));
    let pairs = [("inductor", inductor), ("triton", triton), ("vllm-models", models)];
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

/// The disks of this machine, where this user may write to them past the file system. A program that does so changes files
/// of everybody.
pub(crate) fn disks() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_disk = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        // SCSI disks and flash memory have a second name, by which they take commands.
        let by_commands = ["sg", "mtd"].iter().any(|start| {
            let number = name.to_str().and_then(|name| name.strip_prefix(start));
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        });
        by_commands || entry.file_type().is_ok_and(|kind| kind.is_block_device())
    };
    let writable = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    entries.filter(is_disk).map(|entry| entry.path()).filter(writable).collect()
}

/// Where a program is likely to write, whoever the folders belong to: the usual places, and what its arguments and its
/// environment name.
pub(crate) fn likely(directory: &Path, arguments: &[OsString]) -> Vec<PathBuf> {
    let temporary = TEMPORARY.iter().map(PathBuf::from).chain([std::env::temp_dir()]);
    let usual = temporary.chain(home()).chain([directory.to_owned()]);
    let values = arguments.iter().cloned().chain(std::env::vars_os().map(|(_, value)| value));
    let named = values.filter_map(|value| path_in(&value)).take(MOST_NAMED);
    let real = |path: PathBuf| path.ancestors().find_map(|there| std::fs::canonicalize(there).ok());
    let mut found: Vec<PathBuf> = usual.chain(named).filter_map(real).collect();
    found.sort();
    found.dedup();
    found
}

/// The absolute path that an argument or a value is: `/data/out`, `--output=/data/out`.
fn path_in(value: &OsStr) -> Option<PathBuf> {
    let bytes = value.as_encoded_bytes();
    let start = if bytes.starts_with(b"/") { 0 } else { bytes.iter().position(|byte| *byte == b'=')? + 1 };
    let path = bytes.get(start..).filter(|path| path.starts_with(b"/") && !path.contains(&b':'))?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Whether a write here does not matter to anybody: temporary files that the program made itself, caches, and the place of
/// our own `nvidia-smi`.
pub(crate) fn is_unimportant(path: &Path) -> bool {
    let in_temporary = TEMPORARY.iter().any(|folder| path.parent() == Some(Path::new(folder)))
        || path.parent() == Some(&std::env::temp_dir());
    let cache = path.file_name().is_some_and(|name| {
        ["__pycache__", ".cache", ".triton", ".nv", "site-packages", "dist-packages"].iter().any(|cache| name == *cache)
    });
    let is_tool = crate::nvidia_smi::place().is_some_and(|tool| tool == path);
    // A folder that was there before is somebody's, and so is what is written into it.
    cache || is_tool || (in_temporary && !path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_arguments() {
        let found = |value: &str| path_in(OsStr::new(value)).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(found("/data/out").as_deref(), Some("/data/out"));
        assert_eq!(found("--output=/data/out").as_deref(), Some("/data/out"));
        assert_eq!(found("/usr/bin:/bin"), None);
        assert_eq!(found("--lr=0.1"), None);
        assert_eq!(found("out"), None);
    }
}

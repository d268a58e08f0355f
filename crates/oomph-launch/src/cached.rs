//! Lists and removes what is in the cache: environments, virtual GPUs, compiled code.
//!
//! An environment has a lock of its own (`lease`). What all runs share, the unpacked virtual GPUs and the compiled code,
//! has one lock together: each run holds it ([`CacheDir::hold`]), and whoever removes takes it alone. A program may outlive
//! its run, so a virtual GPU that a process has loaded stays as well.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::environment::{self, MARKER};
use crate::lease::{self, lock_path};
use crate::{CacheDir, cleanup};

/// The file whose lock runs hold.
const HELD: &str = "in-use.lock";

/// What a thing in the cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachedKind {
    /// A Python environment of `--with`.
    Environment,
    /// An unpacked virtual GPU with the hook.
    VirtualGpu,
    /// What programs compiled: kernels (Inductor, Triton), and the bytecode of libraries that were installed without.
    CompiledKernels,
}

/// One thing in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// What it is.
    pub kind: CachedKind,
    /// Its folder.
    pub path: PathBuf,
    /// The sizes of its files added up, in bytes. Environments of uv share files with its cache by hard links, which are
    /// counted here and stay there.
    pub bytes: u64,
    /// When a run last used it, where that is known.
    pub last_used: Option<SystemTime>,
    /// Whether a run or a process uses it now.
    pub in_use: bool,
    /// The requirements that an environment was made for.
    pub requirements: Vec<String>,
    /// How many packages an environment has.
    pub packages: usize,
    /// The version of an environment's Python.
    pub python: Option<String>,
    /// Whether it was made to its end; what was not is removed by the next attempt.
    pub whole: bool,
}

/// Keeps what runs share from being removed until it is dropped.
#[derive(Debug)]
pub struct Hold {
    /// `None` where the cache cannot be locked: then nobody can remove anything from it either.
    _lock: Option<File>,
}

impl CacheDir {
    /// Notes that a run uses what all runs share.
    pub fn hold(&self) -> Hold {
        let lock = lock_file(self).filter(|file| file.try_lock_shared().is_ok());
        Hold { _lock: lock }
    }

    /// Everything in the cache, the largest of a kind first.
    pub fn contents(&self) -> Vec<Cached> {
        let held = lock_file(self).is_some_and(|file| file.try_lock().is_err());
        let environments = folders(&self.path().join("environments"));
        let mut found: Vec<Cached> = environments.iter().map(|place| environment_at(place)).collect();
        found.extend(
            folders(&self.path().join("runtime")).into_iter().map(|path| shared(CachedKind::VirtualGpu, path, held)),
        );
        let compiled = folders(&self.path().join("compiled"));
        found.extend(compiled.into_iter().map(|path| shared(CachedKind::CompiledKernels, path, held)));
        found.sort_by_key(|one| (one.kind as u8, std::cmp::Reverse(one.bytes)));
        found
    }

    /// Removes what was not used for this time and nobody uses now. Returns what is gone.
    pub fn clean(&self, unused_for: Duration) -> Vec<Cached> {
        let alone = lock_file(self).filter(|file| file.try_lock().is_ok());
        let old =
            |one: &Cached| one.last_used.and_then(|time| time.elapsed().ok()).is_some_and(|age| age >= unused_for);
        let mut gone = Vec::new();
        for one in self.contents() {
            let removed = match one.kind {
                CachedKind::Environment => lease::remove_if_unused(&lock_path(&one.path), unused_for, MARKER),
                // The lock is ours, so only processes that outlived their runs count.
                CachedKind::VirtualGpu | CachedKind::CompiledKernels => {
                    alone.is_some() && old(&one) && !is_loaded(&one.path) && {
                        cleanup::remove_folder(&one.path);
                        !one.path.exists()
                    }
                }
            };
            if removed {
                gone.push(one);
            }
        }
        gone
    }

    /// What is free on the disk of the cache for this user, in bytes; `None` where the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        #[cfg(unix)]
        return rustix::fs::statvfs(self.path()).ok().map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        #[cfg(not(unix))]
        None
    }
}

fn lock_file(cache: &CacheDir) -> Option<File> {
    let path = cache.path().join(HELD);
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).ok()
}

fn environment_at(place: &Path) -> Cached {
    let lock = File::open(lock_path(place)).ok();
    let known = environment::described(place);
    Cached {
        kind: CachedKind::Environment,
        bytes: size(place),
        last_used: lock.as_ref().and_then(|lock| lock.metadata().ok()?.modified().ok()),
        // To lock it for a moment disturbs nobody: who wants it together with others waits.
        in_use: lock.is_some_and(|lock| lock.try_lock().is_err()),
        whole: known.is_some(),
        path: place.to_owned(),
        packages: known.as_ref().map_or(0, |known| known.packages),
        python: known.as_ref().map(|known| known.python.clone()),
        requirements: known.map(|known| known.requirements).unwrap_or_default(),
    }
}

fn shared(kind: CachedKind, path: PathBuf, held: bool) -> Cached {
    Cached {
        kind,
        bytes: size(&path),
        last_used: last_change(&path),
        in_use: held || is_loaded(&path),
        requirements: Vec::new(),
        packages: 0,
        python: None,
        whole: true,
        path,
    }
}

/// When something in a folder was last written: each run touches the folder of its virtual GPU, and compilers write.
fn last_change(path: &Path) -> Option<SystemTime> {
    let below = fs::read_dir(path).into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
    let own = fs::metadata(path).ok();
    own.into_iter().chain(below).filter_map(|found| found.modified().ok()).max()
}

/// Whether a process has a file of this folder loaded, as far as this user may see.
fn is_loaded(folder: &Path) -> bool {
    let wanted = folder.to_string_lossy().into_owned() + "/";
    let processes = folders(Path::new("/proc"));
    processes.iter().any(|process| fs::read_to_string(process.join("maps")).is_ok_and(|maps| maps.contains(&wanted)))
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// The sizes of the files in a folder added up. Links are not followed.
fn size(path: &Path) -> u64 {
    let mut total: u64 = 0;
    let mut open = vec![path.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => open.push(entry.path()),
                Ok(found) if found.is_file() => total = total.saturating_add(found.len()),
                _ => {}
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn aged(path: &Path, age: Duration) {
        File::open(path).and_then(|file| file.set_modified(SystemTime::now() - age)).unwrap();
    }

    fn runtime(cache: &CacheDir, name: &str, age: Duration) -> PathBuf {
        let path = cache.path().join("runtime").join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("library"), "12345").unwrap();
        aged(&path.join("library"), age);
        aged(&path, age);
        path
    }

    #[test]
    fn what_a_run_holds_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path()).unwrap();
        let (old, young) = (runtime(&cache, "old", 40 * DAY), runtime(&cache, "young", DAY));
        let hold = cache.hold();
        assert!(cache.contents().iter().all(|one| one.in_use && one.bytes == 5));
        assert!(cache.clean(30 * DAY).is_empty() && old.exists());
        drop(hold);
        assert_eq!(
            cache.clean(30 * DAY).iter().map(|one| one.path.clone()).collect::<Vec<_>>(),
            std::slice::from_ref(&old)
        );
        assert!(!old.exists() && young.exists());
        assert_eq!(cache.clean(Duration::ZERO).len(), 1);
        assert!(!young.exists() && cache.contents().is_empty());
    }

    #[test]
    fn an_environment_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path()).unwrap();
        let place = cache.path().join("environments").join("a0");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("half-made"), "123").unwrap();
        let lock = File::create(lock_path(&place)).unwrap();
        lock.set_modified(SystemTime::now() - 40 * DAY).unwrap();
        lock.lock_shared().unwrap();
        let [found] = cache.contents().try_into().unwrap();
        assert!(found.in_use && !found.whole && found.bytes == 3);
        assert!(cache.clean(30 * DAY).is_empty() && place.exists());
        lock.unlock().unwrap();
        assert_eq!(cache.clean(30 * DAY).len(), 1);
        assert!(!place.exists());
    }
}

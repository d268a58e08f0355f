//! Tracks who uses an environment of the cache, and removes those that nobody has used for a month.
//!
//! Next to each environment `KEY` lies a file `KEY.lock`. Whoever uses the environment holds its lock together with
//! others, whoever makes or removes it holds it alone. The file's time says when the environment was last used.
//! It stays when the environment goes: a lock on a file that is removed and made again would be two locks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::cleanup;

/// How long an environment may lie unused before the making of a new one removes it.
pub(crate) const UNUSED_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Keeps an environment from being removed, until the last clone of this value is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    /// `None` where the cache cannot be locked: then nobody can remove anything from it either.
    _lock: Option<Arc<File>>,
}

/// The right to make or remove an environment.
#[derive(Debug)]
pub(crate) struct Exclusive {
    lock: File,
    path: PathBuf,
}

/// What was found to be done about an environment.
pub(crate) enum Claim<T> {
    /// It is whole, and will stay. With what is known about it.
    Use(T, Lease),
    /// It is not there, or not whole.
    Make(Exclusive),
}

/// The lock file of an environment.
pub(crate) fn lock_path(environment: &Path) -> PathBuf {
    environment.with_extension("lock")
}

/// Claims an environment: to use it if `finished` knows something about it, else to make it. `waiting` is called when
/// another process is just making it.
///
/// # Errors
/// Any error of the file system.
pub(crate) fn claim<T>(
    environment: &Path,
    finished: impl Fn() -> Option<T>,
    waiting: impl Fn(),
) -> io::Result<Claim<T>> {
    let path = lock_path(environment);
    // A shared cache may be filled and read-only, or on a file system without locks.
    let unlocked = |error| match finished() {
        Some(known) => Ok(Claim::Use(known, Lease { _lock: None })),
        None => Err(error),
    };
    let lock = match open(&path) {
        Ok(lock) => lock,
        Err(error) => return unlocked(error),
    };
    let mut announced = false;
    loop {
        match lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                if !std::mem::replace(&mut announced, true) {
                    waiting();
                }
                lock.lock_shared()?;
            }
            Err(TryLockError::Error(error)) => return unlocked(error),
        }
        if let Some(known) = finished() {
            touch(&path);
            return Ok(Claim::Use(known, Lease { _lock: Some(Arc::new(lock)) }));
        }
        lock.unlock()?;
        match lock.try_lock() {
            Ok(()) if finished().is_none() => return Ok(Claim::Make(Exclusive { lock, path })),
            Ok(()) => lock.unlock()?,
            // Somebody else is at this same point; unequal waits let one of the two be first.
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(2 + u64::from(std::process::id() % 16)));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

impl Exclusive {
    /// The lock once more. It is held until every copy of it is closed, so that whoever is given one holds it on.
    ///
    /// # Errors
    /// Any error of the file system.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// The environment was made and is going to be used.
    ///
    /// # Errors
    /// Any error of the file system.
    pub(crate) fn into_lease(self) -> io::Result<Lease> {
        // Between the two locks nobody removes what was used a moment ago.
        touch(&self.path);
        self.lock.unlock()?;
        self.lock.lock_shared()?;
        Ok(Lease { _lock: Some(Arc::new(self.lock)) })
    }
}

/// A file need only be readable to be locked.
fn open(path: &Path) -> io::Result<File> {
    File::open(path).or_else(|_| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path))
}

/// Notes that an environment is in use, by the path of its lock file. In a cache of somebody else's it cannot be noted.
pub(crate) fn touch(lock: &Path) {
    let _ = File::open(lock).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes the environments in a folder that were last used longer ago than this and that nobody uses now. `marker` is
/// the file that makes an environment whole. Returns how many were removed.
pub(crate) fn remove_unused(environments: &Path, unused_for: Duration, marker: &str) -> usize {
    let entries = fs::read_dir(environments).into_iter().flatten().flatten();
    let locks = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "lock"));
    locks.filter(|lock| remove_if_unused(lock, unused_for, marker)).count()
}

/// Removes one environment under the same conditions, by its lock file. Says whether it is gone.
pub(crate) fn remove_if_unused(lock: &Path, unused_for: Duration, marker: &str) -> bool {
    let environment = lock.with_extension("");
    // A link is somebody's arrangement, and a clock that was wrong proves nothing: both are left alone.
    let is_folder = fs::symlink_metadata(&environment).is_ok_and(|found| found.is_dir());
    let Ok(file) = File::open(lock) else { return false };
    let is_old = || {
        let used = file.metadata().and_then(|found| found.modified()).ok();
        used.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > unused_for)
    };
    if !is_folder || !is_old() || file.try_lock().is_err() || !is_old() {
        return false;
    }
    // First what makes it whole, so that a removal that is broken off leaves nothing that could be taken for whole.
    let _ = fs::remove_file(environment.join(marker));
    cleanup::remove_folder(&environment);
    !environment.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "whole";

    /// A whole environment that was last used so long ago.
    fn environment(folder: &Path, name: &str, age: Duration) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.join("bin")).unwrap();
        fs::write(path.join(MARKER), "").unwrap();
        let lock = File::create(lock_path(&path)).unwrap();
        lock.set_modified(SystemTime::now() - age).unwrap();
        path
    }

    fn claim_at(path: &Path) -> Claim<()> {
        claim(path, || path.join(MARKER).exists().then_some(()), || {}).unwrap()
    }

    #[test]
    fn only_what_is_old_and_unused_goes() {
        let folder = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(24 * 60 * 60);
        let young = environment(folder.path(), "a0", 29 * day);
        let old = environment(folder.path(), "a1", 31 * day);
        let held = environment(folder.path(), "a2", 31 * day);
        let touched = environment(folder.path(), "a3", 31 * day);
        let bystander = folder.path().join("b.python.json");
        fs::write(&bystander, "{}").unwrap();

        drop(claim_at(&touched));
        let holder = File::open(lock_path(&held)).unwrap();
        holder.lock_shared().unwrap();
        assert_eq!(remove_unused(folder.path(), UNUSED_AFTER, MARKER), 1);
        assert!(!old.exists() && young.exists() && held.exists() && touched.exists() && bystander.exists());
        drop(holder);
        assert_eq!(remove_unused(folder.path(), UNUSED_AFTER, MARKER), 1);
        assert!(!held.exists());
        // What was removed can be made again under the same lock.
        assert!(matches!(claim_at(&old), Claim::Make(_)));
    }

    #[test]
    fn one_makes_it_and_all_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a0");
        let made = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let lease = match claim_at(&path) {
                        Claim::Use((), lease) => lease,
                        Claim::Make(exclusive) => {
                            made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            std::thread::sleep(Duration::from_millis(20));
                            fs::create_dir(&path).unwrap();
                            fs::write(path.join(MARKER), "").unwrap();
                            exclusive.into_lease().unwrap()
                        }
                    };
                    // Nobody waits for those who use it.
                    std::thread::sleep(Duration::from_millis(50));
                    drop(lease);
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }
}

//! Prepares what a target is sent: a folder with a script, an order that is taken once, and the answer.
//!
//! The folder lies where both see it, with mode 0700, and belongs to the target's user. The script takes the order by
//! renaming it, and giving up is the same rename: one of the two succeeds, so an order that was given up on is never
//! carried out. A lock on the folder is held while this process lives; the script does nothing once it is free.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Gid, Uid, chown, geteuid};

use crate::error::AttachError;
use crate::process;
use crate::target::Target;

/// What folders of errands are called.
const PREFIX: &str = "oomph-attach-";
/// The order, until it is taken.
const ORDER: &str = "order.json";
/// The order once it is taken.
const TAKEN: &str = "taken.json";
/// The answer.
const ANSWER: &str = "answer.json";
/// The lock that is held while this process lives.
const LOCK: &str = "lock";
/// The script.
const SCRIPT: &str = "errand.py";
/// After this time without anybody holding its lock a folder is swept.
const LEFT_OVER: Duration = Duration::from_secs(60);
/// Between two looks for the answer.
const LOOK: Duration = Duration::from_millis(4);
/// An answer is not larger.
const ANSWER_LIMIT: u64 = 256 << 20;

/// A file that goes along.
pub type ErrandFile<'a> = (&'a str, &'a [u8]);

/// A folder with an order for a target.
#[derive(Debug)]
pub struct Errand {
    pid: u32,
    /// As this process sees it.
    outside: PathBuf,
    /// As the target sees it.
    inside: String,
    _lock: Flock<File>,
    is_kept: bool,
}

impl Errand {
    /// Makes the folder. `script` is run with the global name `FOLDER`, the folder as the target sees it.
    ///
    /// # Errors
    /// When the target has no folder for temporary files that this process can write to.
    pub fn create(target: &Target, script: &str, files: &[ErrandFile<'_>], order: &[u8]) -> Result<Self, AttachError> {
        let root = process::folder(target.pid).join("root");
        let mut refusal = None;
        for base in ["tmp", "dev/shm", "var/tmp"] {
            sweep(&root.join(base));
            let name = format!("{PREFIX}{:016x}", fastrand::u64(..));
            let outside = root.join(base).join(&name);
            if let Err(error) = fs::DirBuilder::new().mode(0o700).create(&outside) {
                refusal.get_or_insert(error);
                continue;
            }
            let inside = format!("/{base}/{name}");
            let filled = fill(&outside, &inside, script, files, order, target);
            match filled {
                Ok(lock) => return Ok(Self { pid: target.pid, outside, inside, _lock: lock, is_kept: false }),
                Err(error) => {
                    let _ = fs::remove_dir_all(&outside);
                    refusal.get_or_insert(error);
                }
            }
        }
        let error = refusal.unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
        Err(AttachError::io(format!("make a folder in the /tmp of process {}", target.pid), error))
    }

    /// The script's path as the target sees it.
    pub fn script(&self) -> String {
        format!("{}/{SCRIPT}", self.inside)
    }

    /// The folder as this process sees it.
    pub fn folder(&self) -> &Path {
        &self.outside
    }

    /// The folder as the target sees it.
    pub fn folder_inside(&self) -> &str {
        &self.inside
    }

    /// Whether the target has taken the order.
    pub fn is_taken(&self) -> bool {
        self.outside.join(TAKEN).exists()
    }

    /// Takes the order back. False where the target has taken it already.
    pub fn cancel(&self) -> bool {
        fs::rename(self.outside.join(ORDER), self.outside.join("cancelled.json")).is_ok() || !self.is_taken()
    }

    /// Waits until the target has taken the order; false when the time is over.
    pub fn wait_taken(&self, end: Instant) -> bool {
        loop {
            if self.is_taken() {
                return true;
            }
            if Instant::now() >= end || !process::is_alive(self.pid) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the answer. `None` when the time is over.
    ///
    /// # Errors
    /// When the target ends meanwhile.
    pub fn wait(&self, end: Instant) -> Result<Option<Vec<u8>>, AttachError> {
        let path = self.outside.join(ANSWER);
        loop {
            if let Some(answer) = read_answer(&path) {
                return Ok(Some(answer));
            }
            if !process::is_alive(self.pid) {
                return Err(AttachError::NoProcess(self.pid));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Leaves the folder where it is when this is dropped: the target goes on using it.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if !self.is_kept {
            self.cancel();
            let _ = fs::remove_dir_all(&self.outside);
        }
    }
}

fn read_answer(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let mut answer = Vec::new();
    file.take(ANSWER_LIMIT).read_to_end(&mut answer).ok()?;
    Some(answer)
}

fn fill(
    outside: &Path,
    inside: &str,
    script: &str,
    files: &[ErrandFile<'_>],
    order: &[u8],
    target: &Target,
) -> std::io::Result<Flock<File>> {
    let is_other = geteuid().is_root() && target.uid != 0;
    let give = |path: &Path| {
        if !is_other {
            return Ok(());
        }
        chown(path, Some(Uid::from_raw(target.uid)), Some(Gid::from_raw(target.gid))).map_err(std::io::Error::from)
    };
    let write = |name: &str, bytes: &[u8]| {
        let path = outside.join(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(bytes)?;
        give(&path)
    };
    let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(outside.join(LOCK))?;
    give(&outside.join(LOCK))?;
    let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| std::io::Error::from(error))?;
    for (name, bytes) in files {
        if let Some(parent) = Path::new(name).parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let mut folder = outside.to_owned();
            for part in parent {
                folder.push(part);
                if !folder.exists() {
                    fs::DirBuilder::new().mode(0o700).create(&folder)?;
                    give(&folder)?;
                }
            }
        }
        write(name, bytes)?;
    }
    write(SCRIPT, format!("FOLDER = {inside:?}\n{script}").as_bytes())?;
    write(ORDER, order)?;
    give(outside)?;
    Ok(lock)
}

/// Removes what attachers left that were killed.
fn sweep(base: &Path) {
    let me = geteuid();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let Some(found) = is_ours.then(|| fs::symlink_metadata(entry.path()).ok()).flatten() else { continue };
        let is_old =
            found.modified().is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > LEFT_OVER));
        if !found.is_dir() || !(me.is_root() || found.uid() == me.as_raw()) || !is_old {
            continue;
        }
        let is_held = File::open(entry.path().join(LOCK))
            .is_ok_and(|lock| Flock::lock(lock, FlockArg::LockSharedNonblock).is_err());
        // A program that records or watches has its folder open for as long.
        if !is_held && !entry.path().join("in-use").exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_target() -> Target {
        Target {
            pid: std::process::id(),
            inner_pid: std::process::id(),
            command: String::new(),
            uid: geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            threads: 1,
            python: None,
            run_folder: None,
            rank: None,
            forbids_remote_debug: false,
        }
    }

    #[test]
    fn an_order_is_taken_once_or_given_up() {
        let make = || Errand::create(&own_target(), "pass\n", &[("oomph/owners/a.py", b"x = 1\n")], b"{}").unwrap();
        let errand = make();
        let folder = errand.folder().to_owned();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(folder.join(ORDER)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(folder.join("oomph/owners/a.py")).unwrap(), "x = 1\n");
        let script = fs::read_to_string(errand.script()).unwrap();
        assert_eq!(script, format!("FOLDER = {:?}\npass\n", errand.folder_inside()));
        assert!(
            File::open(folder.join(LOCK)).is_ok_and(|lock| Flock::lock(lock, FlockArg::LockSharedNonblock).is_err())
        );
        fs::rename(folder.join(ORDER), folder.join(TAKEN)).unwrap();
        assert!(errand.is_taken() && !errand.cancel());
        fs::write(folder.join(ANSWER), "{}").unwrap();
        assert_eq!(errand.wait(Instant::now()).unwrap().unwrap(), b"{}");
        drop(errand);
        assert!(!folder.exists());

        let errand = make();
        assert!(errand.cancel() && !errand.folder().join(ORDER).exists());
        assert!(errand.wait(Instant::now()).unwrap().is_none());
    }
}

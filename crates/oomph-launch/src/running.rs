//! Finds this user's runs that are in progress, as another process sees them.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use oomph_protocol::paths;

use crate::permissions::is_mine;
use crate::run_folder::{bases, read, report_files};
use crate::unique_names::is_fresh_name;
use crate::{Guard, HookConfig, HookReport};

/// A run that goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    /// Its run folder.
    pub folder: PathBuf,
    /// The process that started it, by the folder's name.
    pub launcher: u32,
    /// What the hook does in a run that counts; `None` in a dry run.
    pub guard: Option<Guard>,
    /// When it began, by its files.
    pub began: SystemTime,
    /// The books of its virtual cards; `None` where it runs on real ones.
    pub ledger: Option<PathBuf>,
}

/// The runs of this user whose launchers live, the oldest first.
pub fn running() -> Vec<Running> {
    let mut found: Vec<Running> = Vec::new();
    for base in bases() {
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            found.extend(found_in(&entry.path()));
        }
    }
    found.sort_by(|one, other| (one.began, &one.folder).cmp(&(other.began, &other.folder)));
    // The same folder may have two names among the places of run folders.
    found.dedup_by(|one, other| one.folder == other.folder);
    found
}

impl Running {
    /// What the hook saw in each process so far, by process. One that has not imported its framework is not among them.
    pub fn reports(&self) -> Vec<HookReport> {
        let mut found: Vec<HookReport> = report_files(&self.folder).iter().filter_map(|path| read(path).ok()).collect();
        found.sort_by_key(|report| report.pid);
        found
    }
}

fn found_in(folder: &Path) -> Option<Running> {
    let name = folder.file_name()?.to_str().filter(|name| is_fresh_name(name))?;
    let launcher = name.split('-').nth(1)?.parse().ok()?;
    let metadata = fs::symlink_metadata(folder).ok()?;
    if !metadata.is_dir() || !is_mine(&metadata) || !is_held(&folder.join(paths::LAUNCHER_LOCK)) {
        return None;
    }
    // A folder without it is one of the files that a run keeps on disk.
    let config = folder.join(paths::HOOK_CONFIG);
    // Nor is one of a run of another version, whose reports could not be read.
    let settings: HookConfig = read(&config).ok()?;
    let began = fs::metadata(&config).and_then(|metadata| metadata.modified()).ok()?;
    let ledger = folder.join(paths::LEDGER);
    Some(Running {
        folder: folder.to_owned(),
        launcher,
        guard: settings.guard,
        began,
        ledger: ledger.is_file().then_some(ledger),
    })
}

/// Whether the launcher that holds the lock lives.
fn is_held(lock: &Path) -> bool {
    let lock = match File::open(lock) {
        Ok(lock) => lock,
        Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
    };
    // Shared, so that two who look at once do not take each other for the launcher.
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunFolder;
    use crate::run_folder::tests::config;

    #[test]
    fn a_run_is_seen_while_its_folder_is_there() {
        let mut config = config();
        config.guard = Some(Guard { limit_bytes: Some(7), ..Guard::default() });
        let run = RunFolder::create(&config).unwrap();
        let path = run.path().to_owned();
        let find = || running().into_iter().find(|found| found.folder == path);
        let found = find().unwrap();
        assert_eq!((found.launcher, found.ledger.clone()), (std::process::id(), None));
        assert_eq!(found.guard.as_ref().and_then(|guard| guard.limit_bytes), Some(7));
        fs::write(run.ledger(), b"").unwrap();
        let text = r#"{"schema":"oomph.hook-report/1","pid":7,"memory_now":{"moment":"step-end","time":1.5,"step":3,
            "devices":[{"index":0,"allocated_bytes":5,"reserved_bytes":9}]}}"#;
        fs::write(path.join("hook/7.json"), text).unwrap();
        fs::write(path.join("hook/8.json"), r#"{"schema":"oomph.hook-report/1","pid":8,"memory_now":"nonsense"}"#)
            .unwrap();
        fs::write(path.join("hook/9.json"), "{").unwrap();
        let found = find().unwrap();
        assert_eq!(found.ledger, Some(run.ledger()));
        let reports = found.reports();
        let now = reports[0].memory_now.as_ref().unwrap();
        assert_eq!((now.step, now.devices[0].allocated_bytes, now.devices[0].retries), (3, 5, None));
        assert_eq!((reports.len(), reports[1].pid, &reports[1].memory_now), (2, 8, &None));
        drop(run);
        assert!(find().is_none());
    }
}

//! The folder in which the processes of one run meet: the ledger, the hook's configuration, and its reports.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use oomph_protocol::compared::Compared;
use oomph_protocol::device::{Activity, Refusal};
use oomph_protocol::{Document, ReadError, paths};

use crate::permissions::{is_mine, make_private, write_private};
use crate::unique_names::{fresh_name, is_fresh_name};
use crate::{HookConfig, HookHistory, HookReport, HookReports, LaunchError, WriteFloor, Written, cleanup, crash};

/// A folder without a held lock is left alone for this long: its launcher may be about to take the lock.
const SWEEP_AFTER: Duration = Duration::from_secs(60);

/// A run folder is not made where there is less room than this, in bytes: the ledger is memory-mapped, and a process
/// that finds no room for a page of it dies of a bus error.
const LEAST_ROOM: u64 = 16 << 20;

/// No report of the hook comes near this size; a program's file of that name may.
const LARGEST_REPORT: u64 = 16 << 20;

/// The run folder. It is removed when this value is dropped, and when a signal ends the process before that.
#[derive(Debug)]
pub struct RunFolder {
    main: OwnedFolder,
    /// The folder on disk that `scratch` points into when the run folder itself is in memory.
    on_disk: Option<OwnedFolder>,
    /// The program writes where it says.
    writes_are_free: bool,
    /// How many processes the kernel had killed by then to get memory.
    kills_before: u64,
}

impl RunFolder {
    /// Makes the folder in `$XDG_RUNTIME_DIR`, `/dev/shm` or the temporary folder, the first that can be written, and
    /// sweeps the folders of launchers that were killed. The ledger is the caller's to make.
    ///
    /// # Errors
    /// When none of these folders can be written.
    pub fn create(config: &HookConfig) -> Result<Self, LaunchError> {
        let bases = bases();
        let scratch_bases = scratch_bases();
        for base in bases.iter().chain(&scratch_bases) {
            sweep(base, SWEEP_AFTER);
        }
        Self::create_in(&bases, &scratch_bases, config)
    }

    fn create_in(bases: &[PathBuf], scratch_bases: &[PathBuf], config: &HookConfig) -> Result<Self, LaunchError> {
        let main = OwnedFolder::create_in_first(bases)?;
        let hook = main.path.join(paths::HOOK);
        make_private(&hook).map_err(|source| LaunchError::run_folder(&hook, source))?;

        // A dry run's checkpoints can be as large as real ones. In memory they would take what the program needs.
        let scratch_path = main.path.join(paths::SCRATCH);
        let scratch = if in_memory(&main.path) { OwnedFolder::create_in_first(scratch_bases).ok() } else { None };
        let linked = scratch.filter(|scratch| {
            let folder = scratch.path.join(paths::SCRATCH);
            make_private(&folder).and_then(|()| link(&folder, &scratch_path)).is_ok()
        });
        if linked.is_none() {
            make_private(&scratch_path).map_err(|source| LaunchError::run_folder(&scratch_path, source))?;
        }

        let config_path = main.path.join(paths::HOOK_CONFIG);
        let text = serde_json::to_vec(config).map_err(io::Error::from);
        text.and_then(|text| write_private(&config_path, &text))
            .map_err(|source| LaunchError::run_folder(&config_path, source))?;
        Ok(Self { main, on_disk: linked, writes_are_free: config.allow_writes, kills_before: crate::host::kills() })
    }

    /// The folder itself: the value of `OOMPH_RUN`.
    pub fn path(&self) -> &Path {
        &self.main.path
    }

    /// How many processes of this machine the kernel has killed to get memory since the folder was made.
    pub fn host_kills(&self) -> u64 {
        crate::host::kills().saturating_sub(self.kills_before)
    }

    /// Where the ledger belongs.
    pub fn ledger(&self) -> PathBuf {
        self.main.path.join(paths::LEDGER)
    }

    /// Where a dry run's writes go.
    pub fn scratch(&self) -> PathBuf {
        self.main.path.join(paths::SCRATCH)
    }

    /// Where what is written into a private view is kept: on disk, and in memory.
    #[cfg(target_os = "linux")]
    pub(crate) fn stores(&self) -> (PathBuf, PathBuf) {
        let on_disk = self.on_disk.as_ref().unwrap_or(&self.main);
        // One is never below the other, and both are gone with their folders.
        (on_disk.path.join(paths::STORE), self.main.path.join(paths::STORE_IN_MEMORY))
    }

    /// How the program's writes were kept away from the user's files.
    pub fn write_floor(&self) -> WriteFloor {
        #[cfg(target_os = "linux")]
        return crate::private::floor(self.path());
        #[cfg(not(target_os = "linux"))]
        WriteFloor::Hook { reason: "it takes Linux".to_owned() }
    }

    /// Where a file lies that the program wrote into its private view; none where it wrote none there.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "programs run on Linux only"))]
    pub fn place_of_written(&self, path: &Path) -> Option<PathBuf> {
        #[cfg(target_os = "linux")]
        return crate::private::place_of(self.path(), path);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// What the program wrote that was kept away from the user's files; none where it could write to those.
    pub fn written(&self) -> Option<Written> {
        if self.writes_are_free {
            return None;
        }
        #[cfg(target_os = "linux")]
        return Some(crate::private::written(self.path(), &self.scratch()));
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Forgets the reports of an earlier program, so that the folder can serve a second one.
    pub fn clear_reports(&self) {
        let crashes = self.hook_files().filter(|path| paths::process_of(path, paths::CRASH_END).is_some());
        for path in self.report_files().into_iter().chain(crashes) {
            let _ = fs::remove_file(path);
        }
    }

    /// What the hook saw in each process. Nothing here is an error: a process may have died at any moment.
    pub fn reports(&self) -> HookReports {
        let mut found = HookReports::default();
        for path in self.report_files() {
            match read::<HookReport>(&path) {
                Ok(report) => found.reports.push(report),
                Err(_) => found.unreadable.push(path),
            }
        }
        found.reports.sort_by_key(|report| (report.rank.unwrap_or(0), report.pid));
        found.unreadable.sort();
        let crashes = self.hook_files().filter(|path| paths::process_of(path, paths::CRASH_END).is_some());
        found.crashed_at = crashes.filter_map(|path| crash::site(&path)).min();
        found
    }

    /// Refuses what a hook or a virtual GPU of another version wrote: figures that are read by the wrong declaration are
    /// worse than none.
    ///
    /// # Errors
    /// When a document in the folder is of another version; the error names the file and both versions.
    pub fn check_versions(&self) -> Result<(), LaunchError> {
        let mut reports = self.report_files().into_iter();
        let found = reports.find_map(other_version::<HookReport>);
        let found = found.or_else(|| self.device_files(paths::REPORT_END).find_map(other_version::<Activity>));
        let found = found.or_else(|| self.device_files(paths::REFUSAL_END).find_map(other_version::<Refusal>));
        found.map_or(Ok(()), Err)
    }

    /// Asks the virtual GPU to log what each process takes of it, for [`Self::histories`].
    ///
    /// # Errors
    /// When the folder for the logs cannot be made.
    pub fn log_devices(&self) -> Result<(), LaunchError> {
        let path = self.main.path.join(paths::DEVICE_LOG);
        make_private(&path).map_err(|source| LaunchError::run_folder(&path, source))
    }

    /// Asks the programs of a guarded run to save a checkpoint and end (`python/oomph/guard.py`).
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn ask_to_leave(&self) -> Result<(), LaunchError> {
        let path = self.main.path.join(paths::LEAVE);
        fs::write(&path, b"").map_err(|source| LaunchError::run_folder(&path, source))
    }

    /// What there is for the explanation, by process: what the hook left, or else the virtual GPU's log. A process that
    /// died too early left nothing.
    pub fn histories(&self) -> Vec<HookHistory> {
        let mut found = self.recordings();
        for entry in fs::read_dir(self.main.path.join(paths::DEVICE_LOG)).into_iter().flatten().flatten() {
            let log = entry.path();
            if let Some(pid) = paths::process_of(&log, paths::DEVICE_LOG_END)
                && found.iter().all(|history| history.pid != pid)
            {
                found.push(HookHistory { pid, snapshot: log, names: None });
            }
        }
        found.sort_by_key(|history| history.pid);
        found
    }

    fn recordings(&self) -> Vec<HookHistory> {
        self.hook_files()
            .filter_map(|snapshot| {
                let pid = paths::process_of(&snapshot, paths::SNAPSHOT_END)?;
                let names = paths::of_process(&self.main.path, paths::HOOK, pid, paths::NAMES_END);
                Some(HookHistory { pid, names: names.is_file().then_some(names), snapshot })
            })
            .collect()
    }

    /// What the training computed, where that was recorded: of the process that made most steps, or else of the one that
    /// printed most.
    pub fn compared(&self) -> Option<(Compared, Vec<f64>)> {
        let found = self.hook_files().filter_map(|path| {
            let pid = paths::process_of(&path, paths::COMPARED_END)?;
            let numbers = paths::of_process(&self.main.path, paths::HOOK, pid, paths::NUMBERS_END);
            let numbers = fs::read(numbers).ok()?;
            let numbers = numbers.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect();
            Some((read::<Compared>(&path).ok()?, numbers))
        });
        found.max_by_key(|(compared, _)| (compared.steps.len(), compared.printed.len()))
    }

    /// What the virtual GPU counted of each process's memory calls. A process that was killed left nothing.
    pub fn activities(&self) -> Vec<Activity> {
        let mut found: Vec<Activity> =
            self.device_files(paths::REPORT_END).filter_map(|path| read(&path).ok()).collect();
        found.sort_by_key(|activity| activity.pid);
        found
    }

    /// The last allocation that a card refused to each process, as far as the calls that led to it are known.
    pub fn refusals(&self) -> Vec<Refusal> {
        let mut found: Vec<Refusal> =
            self.device_files(paths::REFUSAL_END).filter_map(|path| read(&path).ok()).collect();
        found.sort_by_key(|refusal| refusal.pid);
        found
    }

    /// The files of the folder `device` that are called by a process's number and this.
    fn device_files(&self, end: &'static str) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(self.main.path.join(paths::DEVICE)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(move |path| paths::process_of(path, end).is_some())
    }

    fn report_files(&self) -> Vec<PathBuf> {
        report_files(&self.main.path)
    }

    fn hook_files(&self) -> impl Iterator<Item = PathBuf> {
        hook_files(&self.main.path)
    }
}

/// The reports of the hook in a run folder.
pub(crate) fn report_files(folder: &Path) -> Vec<PathBuf> {
    hook_files(folder).filter(|path| paths::process_of(path, paths::REPORT_END).is_some()).collect()
}

fn other_version<T: Document>(path: PathBuf) -> Option<LaunchError> {
    match read::<T>(&path) {
        Err(ReadError::Mismatch(mismatch)) => Some(LaunchError::OtherVersion { path, mismatch }),
        _ => None,
    }
}

fn hook_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder.join(paths::HOOK)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// A folder `oomph-PID-RANDOM` that this process removes at its end, and whose lock it holds until then.
#[derive(Debug)]
struct OwnedFolder {
    path: PathBuf,
    /// Held, never read: the lock goes with the process.
    _lock: File,
}

impl OwnedFolder {
    fn create_in_first(bases: &[PathBuf]) -> Result<Self, LaunchError> {
        let mut failure = None;
        for base in bases {
            match has_room(base).and_then(|()| Self::create(base)) {
                Ok(folder) => return Ok(folder),
                Err(source) => failure = Some(LaunchError::run_folder(base, source)),
            }
        }
        Err(failure.unwrap_or_else(|| LaunchError::run_folder(std::env::temp_dir(), io::ErrorKind::NotFound.into())))
    }

    fn create(base: &Path) -> io::Result<Self> {
        let path = base.join(fresh_name());
        make_private(&path)?;
        cleanup::register(&path);
        let lock = File::create(path.join(paths::LAUNCHER_LOCK)).and_then(|file| file.lock().map(|()| file));
        match lock {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                cleanup::remove(&path);
                Err(error)
            }
        }
    }
}

impl Drop for OwnedFolder {
    fn drop(&mut self) {
        cleanup::remove(&self.path);
    }
}

/// An error where a folder's disk is as good as full.
#[cfg(unix)]
fn has_room(base: &Path) -> io::Result<()> {
    let found = rustix::fs::statvfs(base)?;
    // Some network file systems do not know how large they are.
    let known = found.f_blocks > 0;
    let room = found.f_bavail.saturating_mul(found.f_frsize);
    if known && room < LEAST_ROOM { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

#[cfg(not(unix))]
fn has_room(_base: &Path) -> io::Result<()> {
    Ok(())
}

/// Reads a document that another process of a run wrote.
///
/// # Errors
/// When it cannot be read, is not of the declared shape, or is of another version.
pub(crate) fn read<T: Document>(path: &Path) -> Result<T, ReadError> {
    let text = read_bounded(path).map_err(|error| ReadError::Json(serde_json::Error::io(error)))?;
    oomph_protocol::read(&text)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe or a device of that name would block forever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST_REPORT).read_to_end(&mut text)?;
    Ok(text)
}

/// Where a run folder may be, best first: in memory, because every process writes to the ledger all the time.
pub(crate) fn bases() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let shared_memory = cfg!(target_os = "linux").then(|| PathBuf::from("/dev/shm"));
    runtime.into_iter().chain(shared_memory).chain([std::env::temp_dir()]).collect()
}

/// Where the scratch folder may be, best first: on a disk.
fn scratch_bases() -> Vec<PathBuf> {
    let mut bases = vec![std::env::temp_dir()];
    if cfg!(unix) {
        bases.push(PathBuf::from("/var/tmp"));
    }
    bases.sort_by_key(|base| in_memory(base));
    bases
}

#[cfg(target_os = "linux")]
fn in_memory(path: &Path) -> bool {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of the kernel's headers.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    #[expect(clippy::cast_sign_loss, reason = "the type differs between architectures and the magic is 32 bits wide")]
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    rustix::fs::statfs(path).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
fn in_memory(_path: &Path) -> bool {
    false
}

#[cfg(unix)]
pub(crate) fn link(target: &Path, name: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, name)
}

#[cfg(not(unix))]
pub(crate) fn link(_target: &Path, _name: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Removes the run folders of this user whose launchers are gone.
fn sweep(base: &Path, older_than: Duration) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_fresh_name(&entry.file_name().to_string_lossy())) {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if !metadata.is_dir() || !is_mine(&metadata) {
            continue;
        }
        let young = metadata.modified().ok().and_then(|time| time.elapsed().ok()).is_none_or(|age| age < older_than);
        match File::open(path.join(paths::LAUNCHER_LOCK)).map(|lock| lock.try_lock()) {
            // Nobody holds the lock: whoever made the folder is dead.
            Ok(Ok(())) if !young => cleanup::remove_folder(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !young => cleanup::remove_folder(&path),
            Ok(Ok(()) | Err(TryLockError::WouldBlock | TryLockError::Error(_))) | Err(_) => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Stop, StopMode, Values};

    pub(crate) fn config() -> HookConfig {
        HookConfig {
            schema: Default::default(),
            stop: Stop { mode: StopMode::Steps, steps: 2, budget_seconds: None },
            follow: true,
            values: Values::Small,
            allow_writes: false,
            network: Default::default(),
            random_weights: false,
            program_root: PathBuf::from("/program"),
            history: false,
            history_entries: None,
            names: true,
            remedies: Vec::new(),
            edited: Default::default(),
            ranks: None,
            routing: Default::default(),
            batches: Default::default(),
            unknown_sizes: Default::default(),
            pools: Default::default(),
            guard: None,
            reads: false,
            bytecode: None,
            compare: None,
        }
    }

    #[test]
    fn the_folder_is_private_and_goes_with_the_value() {
        use std::os::unix::fs::PermissionsExt;
        let run = RunFolder::create(&config()).unwrap();
        let path = run.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let written: HookConfig = serde_json::from_slice(&fs::read(path.join("hook.json")).unwrap()).unwrap();
        assert_eq!(written, config());
        fs::write(run.scratch().join("checkpoint"), "x").unwrap();
        let scratch = fs::canonicalize(run.scratch()).unwrap();
        drop(run);
        assert!(!path.exists() && !scratch.exists());
    }

    #[test]
    fn scratch_is_not_kept_in_memory() {
        let memory = PathBuf::from("/dev/shm");
        let disk = tempfile::tempdir().unwrap();
        if !in_memory(&memory) || in_memory(disk.path()) {
            return;
        }
        let run = RunFolder::create_in(&[memory], &[disk.path().to_owned()], &config()).unwrap();
        let scratch = fs::canonicalize(run.scratch()).unwrap();
        assert!(scratch.starts_with(fs::canonicalize(disk.path()).unwrap()), "{}", scratch.display());
        drop(run);
        assert!(!scratch.exists());
    }

    #[test]
    fn histories_are_found_next_to_the_reports() {
        let run = RunFolder::create(&config()).unwrap();
        let hook = run.path().join("hook");
        for name in ["7.snapshot.pickle", "7.names.json", "5.snapshot.pickle", "x.snapshot.pickle", "9.names.json"] {
            fs::write(hook.join(name), "").unwrap();
        }
        let found = run.histories();
        assert_eq!(found.iter().map(|history| history.pid).collect::<Vec<_>>(), [5, 7]);
        assert_eq!(found[0].names, None);
        assert_eq!(found[1].names, Some(hook.join("7.names.json")));
        // They are no reports, good or bad.
        assert!(run.reports().reports.is_empty() && run.reports().unreadable.is_empty());
    }

    #[test]
    fn garbled_reports_are_set_aside() {
        let run = RunFolder::create(&config()).unwrap();
        let hook = run.path().join("hook");
        fs::write(hook.join("12.json"), r#"{"schema":"oomph.hook-report/1","pid":12,"rank":1}"#).unwrap();
        fs::write(hook.join("15.json"), r#"{"schema":"oomph.hook-report/1","pid":15,"rank":0}"#).unwrap();
        fs::write(hook.join("13.json"), r#"{"pid":13,"#).unwrap();
        fs::write(hook.join("14.json.tmp"), "half").unwrap();
        fs::create_dir(hook.join("16.json")).unwrap();
        let found = run.reports();
        assert_eq!(found.reports.iter().map(|report| report.pid).collect::<Vec<_>>(), [15, 12]);
        assert_eq!(found.unreadable, [hook.join("13.json"), hook.join("16.json")]);
        run.clear_reports();
        assert!(run.reports().reports.is_empty());
    }

    #[test]
    fn what_another_version_wrote_is_refused_in_one_line() {
        let run = RunFolder::create(&config()).unwrap();
        run.check_versions().unwrap();
        for (file, text) in [
            ("hook/7.json", r#"{"schema":"oomph.hook-report/2","pid":7}"#),
            ("hook/7.json", r#"{"pid":7}"#),
            ("device/7.json", r#"{"schema":"oomph.device-activity/0","pid":7}"#),
            ("device/7.refused.json", r#"{"schema":"oomph.names/1","pid":7}"#),
        ] {
            let path = run.path().join(file);
            let _ = fs::create_dir(run.path().join(paths::DEVICE));
            fs::write(&path, text).unwrap();
            let error = run.check_versions().unwrap_err().to_string();
            assert!(error.contains(file) && error.contains("expected \"oomph."), "{error}");
            assert!(!error.contains('\n') && !run.activities().iter().any(|found| found.pid == 7), "{error}");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn only_dead_folders_are_swept() {
        let base = tempfile::tempdir().unwrap();
        let alive = OwnedFolder::create(base.path()).unwrap();
        let dead = base.path().join("oomph-4242-0123456789abcdef");
        fs::create_dir_all(dead.join("hook")).unwrap();
        File::create(dead.join(paths::LAUNCHER_LOCK)).unwrap();
        let unlocked = base.path().join("oomph-4243-0123456789abcdef");
        fs::create_dir(&unlocked).unwrap();
        let others = base.path().join("oomph-notes");
        fs::create_dir(&others).unwrap();
        sweep(base.path(), SWEEP_AFTER);
        assert!(dead.exists() && unlocked.exists(), "young folders are left alone");
        sweep(base.path(), Duration::ZERO);
        assert!(!dead.exists() && !unlocked.exists());
        assert!(alive.path.exists() && others.exists());
    }

    #[test]
    fn a_base_that_cannot_be_written_is_passed_over() {
        let good = tempfile::tempdir().unwrap();
        let bases = [PathBuf::from("/proc/none"), good.path().to_owned()];
        let run = RunFolder::create_in(&bases, &bases, &config()).unwrap();
        assert!(run.path().starts_with(good.path()));
        let error = RunFolder::create_in(&bases[..1], &[], &config()).unwrap_err().to_string();
        assert!(error.contains("/proc/none") && error.contains("TMPDIR"), "{error}");
    }
}

//! Where the files of a run are. The run folder is made by the launcher, which names it in [`RUN_VARIABLE`]; all other
//! names here are below it. `docs/internals/run-folder.md` says who writes what.

use std::path::{Path, PathBuf};

/// Declares names, and a list of all of them for `python/oomph/_protocol.py`.
macro_rules! names {
    ($($(#[$about:meta])* $constant:ident = $text:literal;)+) => {
        $($(#[$about])* pub const $constant: &str = $text;)+

        /// All of the above, by the names of their constants.
        pub const ALL: &[(&str, &str)] = &[$((stringify!($constant), $constant),)+];
    };
}

names! {
    /// The variable of the environment that names the run folder.
    RUN_VARIABLE = "OOMPH_RUN";
    /// The books of the virtual cards (`oomph_ledger::Ledger`).
    LEDGER = "ledger";
    /// Its lock says that the folder's launcher lives. A lock rather than a process id, because containers share `/dev/shm`
    /// and `/tmp` and not their process numbers.
    LAUNCHER_LOCK = "launcher.lock";
    /// The launcher's configuration of the hook.
    HOOK_CONFIG = "hook.json";
    /// The folder of what the hook saw, by process.
    HOOK = "hook";
    /// Below [`HOOK`]: ranks that are ready to stop.
    READY = "ready";
    /// Below [`HOOK`]: where the ranks of a job agree on the end of a loop.
    LOOPS = "loops";
    /// Ends the name of a report in [`HOOK`], and of the activity in [`DEVICE`]: `PID.json`.
    REPORT_END = ".json";
    /// Ends the name of what the hook knows of a recording's blocks, next to the recording.
    NAMES_END = ".names.json";
    /// Ends the name of what a training computed, for a comparison.
    COMPARED_END = ".compared.json";
    /// Ends the name of the numbers of it.
    NUMBERS_END = ".numbers";
    /// Ends the name of PyTorch's own snapshot.
    SNAPSHOT_END = ".snapshot.pickle";
    /// Ends the name of what Python's `faulthandler` writes where a signal ends a process.
    CRASH_END = ".crash";
    /// The folder of what the virtual GPU counted, by process.
    DEVICE = "device";
    /// Ends the name of the last refusal in [`DEVICE`].
    REFUSAL_END = ".refused.json";
    /// Where the main thread of a process is that was asked for it, as `faulthandler` writes a stack.
    WHERE = "where";
    /// The folder that asks the virtual GPU for logs, and receives them.
    DEVICE_LOG = "device-log";
    /// Ends the name of a log in [`DEVICE_LOG`].
    DEVICE_LOG_END = ".jsonl";
    /// The folder in which the ranks of a job exchange small messages.
    RANKS = "ranks";
    /// Where a dry run's writes go.
    SCRATCH = "scratch";
    /// Where what is written into a private view is kept, on disk.
    STORE = "store";
    /// The same, in memory.
    STORE_IN_MEMORY = "store-in-memory";
    /// What the hook's overlay of writes records for the processes of a run.
    OVERLAY = "overlay";
    /// What the program's private view is to be made of.
    VIEW_PLAN = "private.plan";
    /// What the view was made of.
    VIEW = "private";
    /// Why the kernel gave no view.
    VIEW_REFUSED = "private.refused";
    /// Why the program could not be started in its view.
    VIEW_NOT_STARTED = "private.not-started";
    /// There is a fence in place of a view.
    FENCE = "fence";
    /// The stand-in for `nvidia-smi` that a private view shows in the tool's usual place.
    NVIDIA_SMI = "nvidia-smi";
    /// The program's temporary files behind a fence.
    TEMPORARY = "tmp";
    /// The folder of sockets through which a guarded process can be attached to.
    DOOR = "door";
    /// Ends the name of a socket in [`DOOR`].
    DOOR_END = ".sock";
    /// What a child of the fork server was given too late: variables that imported libraries had read by then.
    SET_TOO_LATE = "set-too-late";
    /// Something of oomph's own died in the program, which may wait without end for it: the launcher ends the run.
    FAULT = "fault";
    /// Asks the programs of a guarded run to save a checkpoint and end.
    LEAVE = "leave";
    /// The step at which the ranks of a guarded run leave.
    LEAVE_AT = "leave-at";
}

/// A file of one process: `PID` and an end, in a folder of the run folder.
#[must_use]
pub fn of_process(run: &Path, folder: &str, pid: u32, end: &str) -> PathBuf {
    run.join(folder).join(format!("{pid}{end}"))
}

/// The process that a file belongs to; `None` where its name is not a process number and this end.
#[must_use]
pub fn process_of(file: &Path, end: &str) -> Option<u32> {
    let number = file.file_name()?.to_str()?.strip_suffix(end)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_process_of_its_name() {
        let path = of_process(Path::new("/run"), HOOK, 7, NAMES_END);
        assert_eq!(path, Path::new("/run/hook/7.names.json"));
        assert_eq!((process_of(&path, NAMES_END), process_of(&path, REPORT_END)), (Some(7), None));
        assert_eq!((process_of(Path::new(".json"), ".json"), process_of(Path::new("+7.json"), ".json")), (None, None));
    }
}

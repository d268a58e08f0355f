//! Prepares the private view of the file system that a program runs in (`oomph_private`): what goes into it, and the
//! step between the launcher and the program that makes it.
//!
//! A view has to be made by the process that is to live in it, before that becomes the program. Between `fork` and
//! `exec` hardly anything may be done, so the launcher starts its own executable as that process, which makes the view
//! and then becomes the program.

use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub(crate) use linux::{PrivateView, floor, network_refusal, own_executable, place_of, serve, written};

/// Programs run on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn own_executable() -> Option<PathBuf> {
    None
}

/// The environment variable that keeps a run on a lower floor, for tests and for machines where something goes wrong:
/// `off` for no view at all, `fence` for a fence in its place, `user` for a view that is made as an ordinary user makes it.
const FLOOR_VARIABLE: &str = "OOMPH_PRIVATE_VIEW";

/// How a run keeps a program's writes away from the user's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteFloor {
    /// The kernel shows the program a private view.
    Kernel {
        /// It took a user namespace.
        user_namespace: bool,
        /// What can only be read.
        read_only: Vec<PathBuf>,
    },
    /// The kernel refuses to write outside the run's folders, and the hook redirects what Python writes.
    Fence {
        /// Why there is no private view.
        reason: String,
    },
    /// The hook redirects what Python writes.
    Hook {
        /// Why there is no private view.
        reason: String,
    },
}

impl WriteFloor {
    /// The devices of real GPUs that a child process could open if it dropped the preload. Above the lowest floor the
    /// kernel refuses them.
    pub fn real_cards_in_reach(&self) -> Vec<PathBuf> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Hook { .. } => crate::places::real_cards(),
            #[cfg(not(target_os = "linux"))]
            Self::Hook { .. } => Vec::new(),
            Self::Kernel { .. } | Self::Fence { .. } => Vec::new(),
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{OsStr, OsString};
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use oomph_private::{FENCE_FILE, Made, PLAN_FILE, Plan, Record, Written};
    use oomph_protocol::paths;

    use super::{FLOOR_VARIABLE, WriteFloor};
    use crate::permissions::{make_private, write_private};
    use crate::{LaunchError, nvidia_smi, places};

    /// The argument that makes this executable the step before a program. The plan and the program follow.
    const ARGUMENT: &str = "--in-private-view";

    /// What is put in front of the name of a variable that is for the program and would change the step.
    const LATER: &str = "OOMPH_LATER_";

    /// Variables of the dynamic loader.
    const LOADER: [&str; 3] = ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"];

    const RECORD: &str = paths::VIEW;
    /// The folder for temporary files behind a fence.
    const TEMPORARY: &str = paths::TEMPORARY;
    const REFUSED: &str = paths::VIEW_REFUSED;
    const NOT_STARTED: &str = paths::VIEW_NOT_STARTED;

    /// The executable knows how to be the step.
    static AVAILABLE: AtomicBool = AtomicBool::new(false);

    /// What the kernel refused, once it was asked. It would refuse it again.
    #[derive(Default)]
    struct Refused {
        view: Option<String>,
        fence: bool,
    }

    static REFUSED_HERE: Mutex<Refused> = Mutex::new(Refused { view: None, fence: false });

    fn refused() -> MutexGuard<'static, Refused> {
        REFUSED_HERE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A view that a program is to run in.
    #[derive(Debug, Clone)]
    pub(crate) struct PrivateView {
        /// The run folder.
        folder: PathBuf,
        plan: Plan,
    }

    impl PrivateView {
        /// The view of the run in `folder`; none where it is not wanted or cannot be made by this executable.
        ///
        /// `stores` is where what is written into it is kept: on disk, and in memory.
        pub(crate) fn of(
            folder: &Path,
            (disk, memory): (PathBuf, PathBuf),
            cache: &Path,
            directory: &Path,
            arguments: &[OsString],
        ) -> Option<Self> {
            let floor = std::env::var_os(FLOOR_VARIABLE).unwrap_or_default();
            if !AVAILABLE.load(Ordering::Relaxed) || floor == "off" {
                return None;
            }
            let fence = floor == "fence" || refused().view.is_some();
            if fence && refused().fence {
                return None;
            }
            let mut open = places::open(cache, directory);
            open.extend([folder.to_owned()]);
            open.extend(disk.parent().map(Path::to_owned));
            let plan = Plan {
                base: "/".into(),
                disk,
                memory,
                below: None,
                keep_real: false,
                open,
                instead: places::compiled(cache),
                tool: nvidia_smi::place().map(|place| (folder.join(paths::NVIDIA_SMI), place)),
                hidden: places::real_cards().into_iter().chain(places::disks()).collect(),
                no_network: false,
                likely: places::likely(directory, arguments),
                directory: directory.into(),
                record: folder.join(RECORD),
                fence: false,
                user: floor == "user",
            };
            let view = Self { folder: folder.into(), plan };
            if fence { view.fenced() } else { Some(view) }
        }

        /// A fence in place of the view; none where the view was to cut off the network.
        pub(crate) fn fenced(mut self) -> Option<Self> {
            if self.plan.fence || self.plan.no_network {
                return None;
            }
            self.plan.fence = true;
            self.plan.record = self.folder.join(FENCE_FILE);
            // Temporary files have a place of the run's own: others' lie in the usual one.
            make_private(&self.folder.join(TEMPORARY)).ok()?;
            Some(self)
        }

        /// Variables for a program behind a fence, which cannot write where libraries would by default.
        pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
            if !self.plan.fence {
                return Vec::new();
            }
            let mut found = vec![("TMPDIR".into(), self.folder.join(TEMPORARY).into_os_string())];
            for (ours, _) in &self.plan.instead {
                let name = match ours.file_name().and_then(OsStr::to_str) {
                    Some("inductor") => "TORCHINDUCTOR_CACHE_DIR",
                    Some("triton") => "TRITON_CACHE_DIR",
                    _ => continue,
                };
                found.push((name.into(), ours.clone().into_os_string()));
            }
            found
        }

        /// The view of a fork server: its children make views of their own, for which the real file system stays in
        /// reach. A fence leaves open where the run folders of its children will be, and they raise fences of their own.
        pub(crate) fn for_a_server(mut self) -> Self {
            self.plan.keep_real = true;
            if self.plan.fence {
                let folders = [Some(self.folder.as_path()), self.plan.disk.parent()];
                self.plan.open.extend(folders.into_iter().flatten().filter_map(Path::parent).map(Path::to_owned));
            }
            self
        }

        /// Whether it is a fence.
        pub(crate) fn is_fence(&self) -> bool {
            self.plan.fence
        }

        /// The view of a child of a fork server, whose view is `server`.
        pub(crate) fn inside(mut self, server: &Self) -> Self {
            self.plan.base = server.real_root();
            // It is in the server's network already.
            self.plan.no_network = false;
            self.plan.below = Some(server.plan.record.clone());
            self
        }

        /// The same without a network.
        pub(crate) fn without_network(mut self) -> Self {
            self.plan.no_network = true;
            self
        }

        /// Where a fork server has the real file system.
        pub(crate) fn real_root(&self) -> PathBuf {
            self.plan.disk.join("real")
        }

        /// Writes the plan to the run folder and gives its path.
        pub(crate) fn write(&self) -> io::Result<PathBuf> {
            let path = self.folder.join(PLAN_FILE);
            write_private(&path, &self.plan.to_bytes())?;
            Ok(path)
        }

        /// Whether the view was made.
        pub(crate) fn was_made(&self) -> bool {
            self.plan.record.is_file()
        }

        /// Whether it is known what became of the view.
        pub(crate) fn is_decided(&self) -> bool {
            self.was_made() || [REFUSED, NOT_STARTED].iter().any(|name| self.folder.join(name).exists())
        }

        /// Takes a view that is not made in time for one that was refused.
        pub(crate) fn give_up(&self) {
            let reason = "it was not made in time: does a network mount not answer?";
            let _ = write_private(&self.folder.join(REFUSED), reason.as_bytes());
        }

        /// Whether the kernel gave no view, so that the program was not started.
        pub(crate) fn was_refused(&self) -> bool {
            match std::fs::read_to_string(self.folder.join(REFUSED)) {
                Ok(reason) => {
                    let mut refused = refused();
                    if self.plan.fence {
                        refused.fence = true;
                    } else {
                        refused.view = Some(reason);
                    }
                    // The next attempt in this folder is another.
                    let _ = std::fs::remove_file(self.folder.join(REFUSED));
                    true
                }
                Err(_) => false,
            }
        }

        /// What runs the step before a program, in place of the program's own command.
        ///
        /// # Errors
        /// When the plan cannot be written.
        pub(crate) fn staged(
            &self,
            program: &Path,
            variables: &[(&OsString, Option<OsString>)],
        ) -> io::Result<Command> {
            let plan = self.write()?;
            // The path stays true when the file is replaced while we run, as a build or an update does.
            let mut command = Command::new("/proc/self/exe");
            command.arg0("oomph").arg(ARGUMENT).arg(plan).arg(program);
            for (name, value) in variables {
                match value {
                    Some(value) if LOADER.iter().any(|loader| *name == loader) => {
                        command.env(format!("{LATER}{}", name.to_string_lossy()), value);
                    }
                    Some(value) => drop(command.env(name, value)),
                    None => drop(command.env_remove(name)),
                }
            }
            Ok(command)
        }

        /// Why the program could not be started, if it could not.
        pub(crate) fn trouble(&self) -> Option<io::Error> {
            let text = std::fs::read_to_string(self.folder.join(NOT_STARTED)).ok()?;
            Some(io::Error::from_raw_os_error(text.parse().ok()?))
        }
    }

    /// Why there can be no network namespace here, which is made with a private view.
    pub(crate) fn network_refusal() -> LaunchError {
        LaunchError::NetworkNotCut { reason: why_no_view() }
    }

    /// How a run's writes were kept away, as its folder says.
    pub(crate) fn floor(folder: &Path) -> WriteFloor {
        let record = std::fs::read(folder.join(RECORD)).and_then(|bytes| Record::from_bytes(&bytes));
        if let Ok(record) = record {
            return WriteFloor::Kernel {
                user_namespace: record.made == Made::UserNamespace,
                read_only: record.read_only,
            };
        }
        let reason = why_no_view();
        if folder.join(FENCE_FILE).exists() { WriteFloor::Fence { reason } } else { WriteFloor::Hook { reason } }
    }

    fn why_no_view() -> String {
        refused().view.clone().unwrap_or_else(|| "it was not asked for".to_owned())
    }

    /// What a run wrote: into its view, and into `scratch`, where the hook redirects what Python writes.
    pub(crate) fn written(folder: &Path, scratch: &Path) -> Written {
        let mut found = Written::of(&folder.join(RECORD), &places::is_unimportant).unwrap_or_default();
        // The hook's own files there have names that begin with a dot.
        let own = |path: &Path| path.parent() == Some(Path::new("/")) && path.to_string_lossy().starts_with("/.");
        found.add_folder(scratch, Path::new("/"), &|path| own(path) || places::is_unimportant(path));
        found
    }

    /// Where a file lies that the program wrote into its view.
    pub(crate) fn place_of(folder: &Path, path: &Path) -> Option<PathBuf> {
        Written::place_of(&folder.join(RECORD), path)
    }

    /// This executable, if it is oomph and is still where it was started from.
    pub(crate) fn own_executable() -> Option<PathBuf> {
        let is_oomph = AVAILABLE.load(Ordering::Relaxed);
        is_oomph.then(std::env::current_exe)?.ok().filter(|path| path.is_file())
    }

    /// Becomes the step before a program and never returns, if this process was started as one; otherwise lets programs
    /// have one.
    pub(crate) fn serve() {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
            AVAILABLE.store(true, Ordering::Relaxed);
            return;
        }
        let (Some(plan), Some(program)) = (arguments.next().map(PathBuf::from), arguments.next()) else {
            std::process::exit(1);
        };
        let say = |name: &str, text: &str| drop(std::fs::write(plan.with_file_name(name), text));
        let view = std::fs::read(&plan).and_then(|bytes| Plan::from_bytes(&bytes));
        // What was tried cannot be undone, so the launcher starts the program without a view.
        if let Err(error) = view.and_then(|view| oomph_private::enter(&view)) {
            say(REFUSED, &error.to_string());
            std::process::exit(1);
        }
        let mut command = Command::new(program);
        command.args(arguments);
        for name in LOADER {
            let later = OsString::from(format!("{LATER}{name}"));
            if let Some(value) = std::env::var_os(&later) {
                command.env(name, value);
            }
            command.env_remove(later);
        }
        let error = command.exec();
        say(NOT_STARTED, &error.raw_os_error().unwrap_or_default().to_string());
        std::process::exit(1);
    }
}

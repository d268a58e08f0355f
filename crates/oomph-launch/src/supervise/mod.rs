//! Runs the program: its environment variables, its streams, its signals, its end.

use std::collections::BTreeMap;
#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use crate::{CacheDir, Environment, LaunchError, OwnLimit, Prepared, RunFolder, Runtime};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) mod waiting;
#[cfg(target_os = "linux")]
pub(crate) mod whereabouts;
#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "linux")]
pub(crate) use linux::{command, exit_of, tail_of};

#[cfg(not(target_os = "linux"))]
mod platform {
    pub(super) fn run(
        _launch: super::Launch,
        _own: Option<&crate::OwnLimit>,
    ) -> Result<super::Outcome, crate::LaunchError> {
        Err(crate::LaunchError::UnsupportedPlatform)
    }
}

/// How long a program may take to end after it was asked to.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// How much of a captured standard error is kept.
const TAIL_BYTES: usize = 64 << 10;

/// Where the program's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// To our own standard output and error, terminal or not.
    #[default]
    Inherit,
    /// All of it to our standard error, because our standard output holds a document.
    StdoutToStderr,
    /// Nowhere. Standard input is empty.
    Discard,
    /// Standard output nowhere, the end of standard error into [`Outcome::stderr_tail`]. Standard input is empty.
    Capture,
}

/// A program that is about to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: Option<PathBuf>,
    variables: BTreeMap<OsString, Variable>,
    output: Output,
    timeout: Option<Duration>,
    /// A server is ended once it waits for requests.
    ends_servers: bool,
    /// Called once a program has waited for some seconds.
    says: Option<fn(&Waits)>,
    grace: Duration,
    tail_bytes: usize,
    /// The program must not run with a network.
    no_network: bool,
    #[cfg(target_os = "linux")]
    private: Option<crate::private::PrivateView>,
}

/// What is done to one environment variable. What is not named is inherited.
#[derive(Debug, Clone)]
enum Variable {
    Set(OsString),
    Remove,
    /// Put in front of what is inherited, first one first.
    Prepend(Vec<OsString>),
}

/// Torch asks the kernel for huge pages under its large host tensors where this is 1 (`c10/core/impl/alloc_cpu.cpp`).
/// What would be on the card may be in the host's memory in a dry run, and small pages take most of the time of filling it.
const TORCH_HUGE_PAGES: &str = "THP_MEM_ALLOC_ENABLE";

/// Importing torch's compiler starts processes that compile, whether or not the program compiles anything, unless this is
/// 0 (`torch/_inductor/async_compile.py`). They take seconds of a core; a program that does compile starts them then.
const TORCH_WARM_POOL: &str = "TORCH_WARM_POOL";

impl Launch {
    /// A program to be started in the current folder with the current environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: None,
            variables: BTreeMap::new(),
            output: Output::default(),
            timeout: None,
            ends_servers: false,
            says: None,
            grace: GRACE,
            tail_bytes: TAIL_BYTES,
            no_network: false,
            #[cfg(target_os = "linux")]
            private: None,
        }
    }

    /// The program that [`crate::prepare`] found, in its environment.
    pub fn prepared(prepared: &Prepared) -> Self {
        let launch = Self::new(&prepared.program).args(&prepared.arguments).directory(&prepared.directory);
        match (&prepared.environment, &prepared.home) {
            (Some(environment), _) => launch.environment(environment),
            (None, Some(home)) => launch.env_prepend("PATH", home.join("bin")).env("VIRTUAL_ENV", home),
            (None, None) => launch,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The folder to start in.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), Variable::Set(value.into()));
        self
    }

    /// Removes an environment variable.
    #[must_use]
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), Variable::Remove);
        self
    }

    /// Puts an entry in front of a list such as `PATH`, be it inherited or set before. Of two calls the later one ends
    /// up in front.
    #[must_use]
    pub fn env_prepend(mut self, name: impl Into<OsString>, entry: impl Into<OsString>) -> Self {
        let entry = entry.into();
        match self.variables.entry(name.into()).or_insert(Variable::Prepend(Vec::new())) {
            Variable::Prepend(entries) => entries.insert(0, entry),
            Variable::Set(value) => *value = join(&[entry], Some(std::mem::take(value))),
            removed @ Variable::Remove => *removed = Variable::Set(entry),
        }
        self
    }

    /// Runs the program in a Python environment.
    #[must_use]
    pub fn environment(self, environment: &Environment) -> Self {
        self.env_prepend("PATH", environment.bin())
            .env("VIRTUAL_ENV", environment.path())
            // It would make the environment's Python look for its library in another one's.
            .env_remove("PYTHONHOME")
    }

    /// Runs the program on the virtual GPU, which is found under the names of these `libraries` as well: those of the
    /// CUDA toolkit that the program does not bring along ([`crate::missing_libraries`]).
    ///
    /// # Errors
    /// When the run folder cannot be written.
    pub fn virtual_gpu(self, runtime: &Runtime, run: &RunFolder, libraries: &[&str]) -> Result<Self, LaunchError> {
        let runtime = runtime.preloadable(run)?;
        let mut launch = self.env_prepend("LD_PRELOAD", runtime.library());
        for (name, value) in [(TORCH_HUGE_PAGES, "1"), (TORCH_WARM_POOL, "0")] {
            if std::env::var_os(name).is_none() {
                launch = launch.env(name, value);
            }
        }
        if !libraries.is_empty() {
            // The loader warns where a program that is linked against one of them is started.
            let linkage = crate::elf::Linkage::read(&crate::program::real_path(&launch.program));
            let is_linked =
                linkage.is_some_and(|file| file.needed.iter().any(|name| libraries.contains(&name.as_str())));
            launch = launch.env_prepend("LD_LIBRARY_PATH", runtime.stand_ins(libraries, is_linked)?);
        }
        if let Some(tools) = runtime.tools(run)? {
            launch = launch.env_prepend("PATH", tools);
        }
        Ok(launch
            .env_prepend("LD_LIBRARY_PATH", runtime.driver_folder())
            // Triton links a helper against libcuda and looks for it here first.
            .env("TRITON_LIBCUDA_PATH", runtime.driver_folder())
            .env_prepend("PYTHONPATH", runtime.python_folder())
            .env(oomph_protocol::paths::RUN_VARIABLE, run.path())
            // With it set, torch counts cards through NVML instead of the runtime, and the two number them
            // differently when CUDA_VISIBLE_DEVICES is set.
            .env_remove("PYTORCH_NVML_BASED_CUDA_CHECK"))
    }

    /// Runs the program with the hook and without the virtual GPU: on the machine's own.
    #[must_use]
    pub fn hook_only(self, runtime: &Runtime, run: &RunFolder) -> Self {
        self.env_prepend("PYTHONPATH", runtime.python_folder()).env(oomph_protocol::paths::RUN_VARIABLE, run.path())
    }

    /// Runs the program in a private view of the file system, where this machine's kernel allows it: what it writes stays
    /// in the run folder, except for caches of downloads and `cache`. Where the kernel does not, the program runs all the
    /// same, and [`RunFolder::write_floor`] says so.
    #[must_use]
    #[cfg_attr(not(target_os = "linux"), expect(unused_mut, unused_variables, reason = "programs run on Linux only"))]
    pub fn private(mut self, run: &RunFolder, cache: &CacheDir) -> Self {
        #[cfg(target_os = "linux")]
        {
            let here = || std::env::current_dir().unwrap_or_else(|_| "/".into());
            let directory = self.directory.clone().unwrap_or_else(here);
            self.private =
                crate::private::PrivateView::of(run.path(), run.stores(), cache.path(), &directory, &self.arguments);
        }
        self
    }

    /// Gives the program, which has a private view, a network of its own that holds only a loopback device. Where the kernel
    /// gives no private view, [`Self::run`] is an error then.
    #[must_use]
    pub fn without_network(mut self) -> Self {
        self.no_network = true;
        #[cfg(target_os = "linux")]
        {
            self.private = self.private.map(crate::private::PrivateView::without_network);
        }
        self
    }

    /// Where the output goes.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Ends the program after this time.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Ends a program that listens on a TCP port once it has been at rest for some seconds: a server that has started
    /// would wait for requests until somebody ends it. One that waits for anything else is ended after a minute.
    #[must_use]
    pub fn ends_servers(mut self, ends: bool) -> Self {
        self.ends_servers = ends;
        self
    }

    /// What is called once a program has waited for some seconds: it may go on unaided, or need somebody who gives it work.
    #[must_use]
    pub fn reports_waits(mut self, says: Option<fn(&Waits)>) -> Self {
        self.says = says;
        self
    }

    /// How long the program may take to end after it was asked to, before it is killed. Two seconds by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How many bytes of a captured standard error are kept.
    #[must_use]
    pub fn tail_bytes(mut self, bytes: usize) -> Self {
        self.tail_bytes = bytes;
        self
    }

    /// Runs the program to its end and ends every process that it left behind.
    ///
    /// One program is supervised at a time; a second call waits for the first. While it runs, other code of this
    /// process must start no children of its own: they could not be distinguished from the program's.
    ///
    /// # Errors
    /// When the program cannot be started or watched.
    pub fn run(self) -> Result<Outcome, LaunchError> {
        platform::run(self, None)
    }

    /// As [`Self::run`], and ends the program when it has used up this limit.
    ///
    /// # Errors
    /// As of [`Self::run`].
    pub fn run_within(self, own: Option<&OwnLimit>) -> Result<Outcome, LaunchError> {
        platform::run(self, own)
    }

    /// The value of a variable in the program's environment; `None` removes it.
    fn value(variable: &Variable, inherited: Option<OsString>) -> Option<OsString> {
        match variable {
            Variable::Set(value) => Some(value.clone()),
            Variable::Remove => None,
            Variable::Prepend(entries) => Some(join(entries, inherited)),
        }
    }

    /// The same program with other arguments.
    #[cfg(target_os = "linux")]
    pub(crate) fn instead(&self, arguments: Vec<&str>) -> Self {
        Self { arguments: arguments.into_iter().map(Into::into).collect(), ..self.clone() }
    }

    /// The run folder, where the program is given one.
    #[cfg(target_os = "linux")]
    pub(crate) fn run_folder(&self) -> Option<&Path> {
        match self.variables.get(OsStr::new(oomph_protocol::paths::RUN_VARIABLE))? {
            Variable::Set(folder) => Some(Path::new(folder)),
            Variable::Remove | Variable::Prepend(_) => None,
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn private_view(&self) -> Option<&crate::private::PrivateView> {
        self.private.as_ref()
    }

    /// An error where the network was to be cut off with a private view, and there is none.
    #[cfg(target_os = "linux")]
    pub(crate) fn check_network(&self) -> Result<(), LaunchError> {
        let is_cut = self.private.as_ref().is_some_and(|view| !view.is_fence());
        if self.no_network && !is_cut { Err(crate::private::network_refusal()) } else { Ok(()) }
    }

    /// The same with what is next best, after the kernel refused the view or the fence.
    #[cfg(target_os = "linux")]
    pub(crate) fn one_floor_down(mut self) -> Self {
        self.private = self.private.and_then(crate::private::PrivateView::fenced);
        self
    }

    /// The same in a view that the children of a fork server can be made views from.
    #[cfg(target_os = "linux")]
    pub(crate) fn for_a_server(mut self) -> Self {
        self.private = self.private.map(crate::private::PrivateView::for_a_server);
        self
    }

    /// Whether a program that waits is ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn ends_what_waits(&self) -> bool {
        self.ends_servers
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn program_path(&self) -> &Path {
        &self.program
    }
}

/// A list of folders or libraries with more of them behind it.
fn join(entries: &[OsString], rest: Option<OsString>) -> OsString {
    // An empty entry of these lists means the current folder, so an empty rest is taken for none.
    let rest = rest.filter(|value| !value.is_empty());
    let mut list = OsString::new();
    for (index, entry) in entries.iter().chain(&rest).enumerate() {
        if index > 0 {
            list.push(":");
        }
        list.push(entry);
    }
    list
}

/// From now on a signal that ends this process also ends its children and removes its run folder.
///
/// Supervision does this on its own; a caller that makes an environment or a run folder first calls it early.
///
/// # Errors
/// When the system does not let us watch for signals.
pub fn handle_signals() -> Result<(), LaunchError> {
    #[cfg(target_os = "linux")]
    crate::interrupts::install()?;
    Ok(())
}

/// To be called first in `main`, while the process has one thread. A program's private view is made by a process of the
/// same executable, which becomes the program; and a run is watched over by a second process of the same executable, which ends it when
/// the launcher is killed; if this process was started to be one of the two, the call never returns. Without the
/// call, runs have neither.
pub fn serve_watchdog() {
    #[cfg(target_os = "linux")]
    {
        crate::private::serve();
        crate::watchdog::serve();
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// On its own, with this status.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

impl Exit {
    /// The status as a shell shows it: 128 + N for signal N.
    pub fn shell_status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// Whether the program says that all went well.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

/// A program that waits: nothing was computed by it or by what it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// For how long, as far as it was seen.
    pub since: Duration,
    /// Where its main thread is; `None` where that cannot be asked.
    pub place: Option<Place>,
}

/// Where the main thread of a Python process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file of the user's innermost line.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function.
    pub function: String,
    /// What it called, such as `queue.get`; `None` where that is the interpreter's own.
    pub called: Option<String>,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How the program ended.
    pub exit: Exit,
    /// From its start to its end.
    pub elapsed: Duration,
    /// The same without the time in which other work had its processors: what it would have taken on a machine to itself.
    pub own: Duration,
    /// It was ended because its time was up.
    pub timed_out: bool,
    /// It was ended because it listened for requests and nothing happened any more.
    pub waited: bool,
    /// It waited for something else when it ended, and had done so for a while.
    pub waits: Option<Waits>,
    /// It was ended for that.
    pub given_up: bool,
    /// The signal to this process that ended the run. The caller cleans up and exits with 128 + this.
    pub interrupted: Option<i32>,
    /// The end of its standard error, with [`Output::Capture`]; empty otherwise.
    pub stderr_tail: String,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn value(launch: &Launch, name: &str, inherited: Option<&str>) -> Option<OsString> {
        Launch::value(&launch.variables[OsStr::new(name)], inherited.map(OsString::from))
    }

    #[test]
    fn lists_are_extended_in_front() {
        let launch = Launch::new("x").env_prepend("LD_PRELOAD", "/a").env_prepend("LD_PRELOAD", "/b");
        assert_eq!(value(&launch, "LD_PRELOAD", Some("/theirs")), Some("/b:/a:/theirs".into()));
        assert_eq!(value(&launch, "LD_PRELOAD", Some("")), Some("/b:/a".into()));
        assert_eq!(value(&launch, "LD_PRELOAD", None), Some("/b:/a".into()));
    }

    #[test]
    fn variables_are_set_and_removed() {
        let launch = Launch::new("x").env("A", "1").env_remove("B").env("C", "/c").env_prepend("C", "/d");
        assert_eq!(value(&launch, "C", Some("/theirs")), Some("/d:/c".into()));
        assert_eq!(value(&launch, "A", Some("0")), Some("1".into()));
        assert_eq!(value(&launch, "B", Some("0")), None);
    }
}

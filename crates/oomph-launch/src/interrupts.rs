//! Receives signals to this process. One thread receives them all, for as long as the process lives.
//!
//! While a program is supervised, they go to its supervisor. At any other time (an environment is being made, a
//! report is being written) the default holds: the process dies of the signal, after its children have been ended
//! and its folders removed.

use std::io;
use std::os::raw::c_int;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use signal_hook::consts::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::{LaunchError, cleanup, processes};

/// Signals that ask this process to end.
const ENDING: [c_int; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Signals that are the program's business only: job schedulers send them to ask for a checkpoint.
const PASSED_ON: [c_int; 2] = [SIGUSR1, SIGUSR2];

/// How long children may take to end by themselves when this process dies outside of a run.
const IDLE_GRACE: Duration = Duration::from_secs(2);

/// What a supervisor receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The user, or the system, wants the run to end.
    End {
        /// The signal.
        signal: c_int,
        /// The terminal sent it, and so sent it to the whole process group.
        from_terminal: bool,
        /// Who sent it, if a process did.
        sender: Option<i32>,
    },
    /// A signal for the program.
    PassOn(c_int),
    /// Some child changed its state.
    Child,
}

#[derive(Default)]
struct State {
    subscriber: Option<Sender<Event>>,
    /// A signal has arrived that this process is dying of.
    dying: bool,
}

static STATE: Mutex<State> = Mutex::new(State { subscriber: None, dying: false });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread, once.
pub(crate) fn install() -> Result<(), LaunchError> {
    static INSTALLED: OnceLock<Result<(), (io::ErrorKind, String)>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| start().map_err(|error| (error.kind(), error.to_string())));
    installed
        .clone()
        .map_err(|(kind, text)| LaunchError::System { action: "watch for signals", source: io::Error::new(kind, text) })
}

fn start() -> io::Result<()> {
    // What is ignored stays ignored: that is how `nohup` and background jobs of a shell script work, and the
    // program inherits it from us.
    let ignored = ignored_signals();
    let wanted = ENDING.iter().chain(&PASSED_ON).filter(|signal| ignored >> (**signal - 1) & 1 == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted.chain(&[SIGCHLD]))?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for origin in signals.forever() {
            receive(&origin);
        }
    })?;
    Ok(())
}

/// The signals that were ignored when this process was started, as the kernel's bit mask.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn receive(origin: &Origin) {
    let event = if origin.signal == SIGCHLD {
        Event::Child
    } else if PASSED_ON.contains(&origin.signal) {
        Event::PassOn(origin.signal)
    } else {
        let from_terminal = origin.cause == Cause::Kernel;
        let sender = origin.process.as_ref().filter(|_| !from_terminal).map(|process| process.pid);
        Event::End { signal: origin.signal, from_terminal, sender }
    };
    let mut state = state();
    if let Some(subscriber) = &state.subscriber
        && subscriber.send(event).is_ok()
    {
        return;
    }
    match event {
        Event::Child => {}
        Event::PassOn(signal) => die(state, signal, false),
        Event::End { signal, from_terminal, .. } => {
            state.dying = true;
            die(state, signal, from_terminal);
        }
    }
}

/// Ends this process as the signal would have done.
fn die(mut state: MutexGuard<'static, State>, signal: c_int, children_know: bool) {
    state.dying = true;
    drop(state);
    processes::end_everything(IDLE_GRACE, children_know);
    cleanup::remove_all();
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    signal_hook::low_level::exit(128 + signal);
}

/// Signals go to the receiver until this value is dropped.
pub(crate) struct Subscription(Receiver<Event>);

impl Subscription {
    pub(crate) fn start() -> Result<Self, LaunchError> {
        install()?;
        let (sender, receiver) = channel();
        state().subscriber = Some(sender);
        Ok(Self(receiver))
    }

    pub(crate) fn events(&self) -> &Receiver<Event> {
        &self.0
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        state().subscriber = None;
    }
}

/// Called when a helper failed: if it failed because a signal is ending us all, there is nothing to report, and the
/// thread that received the signal ends the process.
pub(crate) fn wait_if_dying() {
    // The terminal sends its signal to the helper and to us at the same moment; the helper may be quicker.
    std::thread::sleep(Duration::from_millis(50));
    if state().dying {
        loop {
            std::thread::park();
        }
    }
}

//! Supervises a program on Linux.
//!
//! The program stays in our process group, so that the terminal treats both as one job: it reads the terminal, Ctrl-C
//! and Ctrl-Z reach it from the kernel, and nothing has to be handed over and back. A signal that was sent to us
//! alone is forwarded to it, once.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use oomph_protocol::paths;
use rustix::process::Signal;

use super::waiting::{Seen, Waiting};
use super::{Exit, Launch, Outcome, Output, Waits, whereabouts};
use crate::interrupts::{Event, Subscription};
use crate::own_time::{OwnLimit, OwnTime};
use crate::private::PrivateView;
use crate::program::spawn_error;
use crate::unique_names::random_name;
use crate::watchdog::{MARK_VARIABLE, Watchdog};
use crate::{LaunchError, processes};

/// The children of a process cannot be distinguished when two programs are supervised at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Two signals in so short a time are one wish: `timeout` signals its child and then the child's group.
const ONE_WISH: Duration = Duration::from_millis(200);

/// How long the making of a private view may take. It takes milliseconds, unless a network mount does not answer.
const LONGEST_VIEW: Duration = Duration::from_secs(30);

/// How long nothing may happen before the program is looked at all the same: its own time goes on.
const LOOK: Duration = Duration::from_millis(500);

/// How long the end of standard error is waited for once all its writers have ended: a guard, for one that got away.
const LONGEST_TAIL: Duration = Duration::from_secs(10);

pub(super) fn run(launch: Launch, own: Option<&OwnLimit>) -> Result<Outcome, LaunchError> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut launch = launch;
    loop {
        launch.check_network()?;
        let outcome = run_once(&launch, own);
        match launch.private.take_if(|view| view.was_refused()) {
            // What is next best.
            Some(view) => launch.private = view.fenced(),
            None => return outcome,
        }
    }
}

fn run_once(launch: &Launch, own: Option<&OwnLimit>) -> Result<Outcome, LaunchError> {
    // Before the program starts, so that not even its earliest end goes unnoticed.
    let signals = Subscription::start()?;
    processes::become_subreaper()
        .map_err(|source| LaunchError::System { action: "become the parent of orphaned processes", source })?;

    // Before the program, so that there is no moment in which it could be left alone.
    let mark = OsString::from(random_name());
    let _watchdog = Watchdog::over(&mark);
    let start = Instant::now();
    let mut child = command(launch)?
        .env(MARK_VARIABLE, &mark)
        .spawn()
        .map_err(|source| spawn_error(launch.program_path(), &source))?;
    let tail = child.stderr.take().map(|stderr| Tail::follow(stderr, launch.tail_bytes));
    let mut run = Run::new(child, launch, own);
    let status = run.watch(signals.events())?;
    let elapsed = start.elapsed();
    let own = run.clock.end(start + elapsed);
    run.end_leftovers(signals.events());
    if let Some(error) = launch.private.as_ref().and_then(PrivateView::trouble) {
        return Err(spawn_error(launch.program_path(), &error));
    }

    Ok(Outcome {
        exit: exit_of(status),
        elapsed,
        own,
        timed_out: run.timed_out,
        waited: run.waited,
        waits: run.waits,
        given_up: run.given_up,
        interrupted: run.interrupted.map(|(signal, _)| signal),
        stderr_tail: tail.map(Tail::finish).unwrap_or_default(),
    })
}

pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(0)),
    }
}

pub(crate) fn command(launch: &Launch) -> Result<Command, LaunchError> {
    let of_view = launch.private.as_ref().map(PrivateView::variables).unwrap_or_default();
    let of_view = of_view.iter().map(|(name, value)| (name, Some(value.clone())));
    let given = launch.variables.iter();
    let given = given.map(|(name, variable)| (name, Launch::value(variable, std::env::var_os(name))));
    let variables: Vec<_> = of_view.chain(given).collect();
    let mut command = match &launch.private {
        Some(view) => view
            .staged(&launch.program, &variables)
            .map_err(|source| LaunchError::System { action: "write to the run folder", source })?,
        None => {
            let mut command = Command::new(&launch.program);
            for (name, value) in &variables {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command
        }
    };
    command.args(&launch.arguments);
    if let Some(directory) = &launch.directory {
        command.current_dir(directory);
    }
    match launch.output {
        Output::Inherit => {}
        Output::StdoutToStderr => {
            command.stdout(Stdio::from(io::stderr()));
        }
        Output::Discard => {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        Output::Capture => {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        }
    }
    Ok(command)
}

struct Run<'a> {
    child: Child,
    pid: i32,
    grace: Duration,
    /// When the user's limit is reached.
    time_is_up: Option<Instant>,
    /// What it takes without the time that others have its processors.
    clock: OwnTime,
    limit: Option<&'a OwnLimit>,
    /// When everything that is left is killed, by its own time: what it has to write, it writes on a busy machine, too.
    kill_at: Option<Duration>,
    timed_out: bool,
    /// What is seen of its rest.
    waiting: Option<Waiting>,
    /// Whether a program that waits is ended.
    ends_servers: bool,
    waited: bool,
    waits: Option<Waits>,
    given_up: bool,
    says: Option<fn(&Waits)>,
    /// Where its processes write where they are.
    folder: Option<PathBuf>,
    /// The file by which the hook says that something of oomph's own died in the program.
    fault: Option<PathBuf>,
    /// The private view that is being made, and when it is given up.
    view: Option<(PrivateView, Instant)>,
    /// The signal that ends the run, and when it came.
    interrupted: Option<(i32, Instant)>,
}

impl<'a> Run<'a> {
    fn new(child: Child, launch: &Launch, limit: Option<&'a OwnLimit>) -> Self {
        let pid = i32::try_from(child.id()).unwrap_or(0);
        Self {
            pid,
            child,
            grace: launch.grace,
            time_is_up: launch.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            clock: OwnTime::start(),
            limit,
            kill_at: None,
            timed_out: false,
            waiting: (launch.ends_servers || launch.says.is_some()).then(|| Waiting::of(pid)),
            ends_servers: launch.ends_servers,
            waited: false,
            waits: None,
            given_up: false,
            says: launch.says,
            folder: launch.run_folder().map(Path::to_owned),
            fault: launch.run_folder().map(|folder| folder.join(paths::FAULT)),
            view: launch.private.clone().map(|view| (view, Instant::now() + LONGEST_VIEW)),
            interrupted: None,
        }
    }

    /// Waits for the program's end.
    fn watch(&mut self, events: &Receiver<Event>) -> Result<ExitStatus, LaunchError> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(source) => {
                    processes::kill_all(None);
                    return Err(LaunchError::System { action: "wait for the program", source });
                }
            }
            let now = Instant::now();
            let own = self.own_time();
            self.view.take_if(|(view, _)| view.is_decided());
            if let Some((view, _)) = self.view.take_if(|(_, at)| *at <= now) {
                view.give_up();
                self.kill_within(Duration::ZERO);
            }
            if self.kill_at.is_some_and(|at| at <= own) {
                processes::kill_all(Some(self.pid));
                // In case it cannot be killed (it waits for a broken disk), it is looked at now and then.
                self.kill_at = Some(own + LOOK);
                continue;
            }
            if self.limit.take_if(|limit| limit.is_used_up(own)).is_some() {
                self.time_is_up = Some(now);
            }
            if self.time_is_up.is_some_and(|at| at <= now) {
                self.time_is_up = None;
                self.limit = None;
                self.timed_out = true;
                processes::send(self.pid, Signal::TERM.as_raw());
                self.kill_within(self.grace);
            }
            if self.is_over_by_waiting(now) {
                self.waiting = None;
                processes::send(self.pid, Signal::TERM.as_raw());
                self.kill_within(self.grace);
            }
            // The program may wait without end for what has died, and what it does from here on answers nothing.
            if self.fault.take_if(|fault| fault.exists()).is_some() {
                processes::send(self.pid, Signal::TERM.as_raw());
                self.kill_within(self.grace);
            }
            let kill = self.kill_at.map(|at| at.saturating_sub(own));
            let time_is_up = self.time_is_up.map(|at| at.saturating_duration_since(now));
            let patience = [kill, time_is_up].into_iter().flatten().fold(LOOK, Duration::min);
            match events.recv_timeout(patience) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                // The thread that feeds us is gone; looking once in a while still works.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(patience.min(Duration::from_millis(50))),
            }
        }
    }

    /// Looks whether the program waits; whether it is to be ended for that.
    fn is_over_by_waiting(&mut self, now: Instant) -> bool {
        let pid = self.pid;
        let Some(waiting) = self.waiting.as_mut().filter(|_| self.kill_at.is_none()) else { return false };
        let seen = waiting.look(now, || processes::descendants(Some(pid)).living);
        match seen {
            Seen::Works => self.waits = None,
            Seen::Rests => {}
            Seen::Serves => self.waited = self.ends_servers,
            Seen::Waits(since) | Seen::IsGivenUp(since) => {
                match &mut self.waits {
                    Some(waits) => waits.since = since,
                    None => {
                        let mut living = processes::descendants(Some(pid)).living;
                        living.sort_by_key(|one| (*one != pid, *one));
                        let place = self.folder.as_deref().and_then(|folder| whereabouts::ask(folder, &living));
                        let waits = self.waits.insert(Waits { since, place });
                        if let Some(says) = self.says {
                            says(waits);
                        }
                    }
                }
                self.given_up = self.ends_servers && matches!(seen, Seen::IsGivenUp(_));
            }
        }
        self.waited || self.given_up
    }

    fn handle(&mut self, event: Event) {
        match event {
            // Only orphans are waited for here: while the program lives, only it can say when its children may go.
            Event::Child => drop(processes::descendants(Some(self.pid))),
            Event::PassOn(signal) => processes::send(self.pid, signal),
            Event::End { signal, from_terminal, sender } => match self.interrupted {
                // A program that signals its own group, to end its workers, also hits us. That is its own affair.
                None if sender.is_some_and(|sender| processes::belongs_to(self.pid, sender)) => {}
                None => {
                    self.interrupted = Some((signal, Instant::now()));
                    if !(from_terminal && processes::shares_our_group(self.pid)) {
                        processes::send(self.pid, signal);
                    }
                    self.kill_within(self.grace);
                }
                Some((_, first)) if first.elapsed() >= ONE_WISH => self.kill_within(Duration::ZERO),
                Some(_) => {}
            },
        }
    }

    /// The own time of all that runs until now.
    fn own_time(&mut self) -> Duration {
        self.clock.until(Instant::now(), || processes::descendants(Some(self.pid)).living)
    }

    fn kill_within(&mut self, grace: Duration) {
        let at = self.own_time() + grace;
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Ends what the program left running.
    fn end_leftovers(&mut self, events: &Receiver<Event>) {
        processes::wind_down(None, || {
            while let Ok(event) = events.try_recv() {
                if let Event::End { signal, .. } = event {
                    // The program has ended, so there is nobody to forward it to and nothing to wait for.
                    self.interrupted.get_or_insert((signal, Instant::now()));
                    self.kill_within(Duration::ZERO);
                }
            }
            let own = self.own_time();
            self.kill_at.is_some_and(|at| at <= own)
        });
    }
}

/// The end of a file of standard error.
pub(crate) fn tail_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    let mut end = || -> io::Result<()> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(super::TAIL_BYTES as u64);
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut bytes).map(drop)
    };
    // A program that wrote nothing may have left no file.
    end().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of what comes through a pipe.
struct Tail {
    finished: Receiver<Vec<u8>>,
}

impl Tail {
    fn follow(mut source: impl Read + Send + 'static, limit: usize) -> Self {
        let (sender, finished) = channel();
        std::thread::spawn(move || {
            let mut kept = VecDeque::new();
            let mut buffer = [0; 8192];
            loop {
                match source.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        kept.extend(&buffer[..count]);
                        kept.drain(..kept.len().saturating_sub(limit));
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let _ = sender.send(kept.into());
        });
        Self { finished }
    }

    fn finish(self) -> String {
        // All writers have been ended. Should one have got away, the tail is given up rather than waited for.
        let bytes = self.finished.recv_timeout(LONGEST_TAIL).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

//! Runs the launcher's end of the fork server.
//!
//! The server is a helper in the sense of [`processes`]: a run that is supervised at the same time leaves it alone.
//! Each child is the leader of a session, by which all its processes are found when it has to be ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::command::Target;
use super::{Forked, ForkedRun, PythonProgram, refusal};
use crate::interrupts::{Event, Subscription};
use crate::own_time::OwnTime;
use crate::private::PrivateView;
use crate::supervise::waiting::{Seen, Waiting as Rest};
use crate::supervise::{Waits, command, exit_of, tail_of};
use crate::unique_names::random_name;
use crate::watchdog::{MARK_VARIABLE, Watchdog};
use crate::{Launch, LaunchError, Outcome, Output, processes};

/// Imports that take longer than this of their own time are taken for a program that hangs.
const LONGEST_IMPORT: Duration = Duration::from_secs(300);

/// A server that has not forked after this time will not: a guard, because forking takes milliseconds.
const LONGEST_FORK: Duration = Duration::from_secs(60);

/// How often signals and the time are looked at while a child runs.
const LOOK: Duration = Duration::from_millis(20);

/// What starts the server. The package is there already when this is run, because the hook imported it, so a folder of
/// its name next to the program is not taken for it.
const START: &str = "from oomph.server import main; main()";

/// Where a child's standard error goes when its end is wanted.
const TAIL_FILE: &str = "standard-error";

#[derive(Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Request<'a> {
    Import {
        script: Option<&'a str>,
        module: Option<&'a str>,
        packages: &'a [String],
    },
    Run {
        number: u64,
        argv: Vec<&'a str>,
        command: Vec<&'a str>,
        script: Option<&'a str>,
        module: Option<&'a str>,
        environment: BTreeMap<&'a str, &'a str>,
        output: &'static str,
        tail: Option<String>,
        /// The plan of the child's private view, as the server reaches it.
        view: Option<String>,
        /// Where the server has the real file system.
        base: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Ready { ready: Ready },
    Started { started: u64, pid: i32 },
    Ended { ended: u64, status: i32 },
}

#[derive(Deserialize)]
struct Ready {
    problem: Option<String>,
}

/// What the thread of a run receives.
enum News {
    Started(i32),
    Ended(i32),
}

/// Who waits for what. Empty and closed once the server is gone.
#[derive(Default)]
struct Waiting {
    gone: bool,
    runs: BTreeMap<u64, Sender<News>>,
}

/// Signals, while runs go on. They may come to any of the threads, and end all runs.
#[derive(Default)]
struct Signals {
    runs: usize,
    subscription: Option<Subscription>,
    interrupted: Option<i32>,
}

pub(super) struct Server {
    process: Child,
    _helper: processes::Helper,
    _watchdog: Option<Watchdog>,
    mark: OsString,
    /// The server's private view, where it has one.
    view: Option<PrivateView>,
    channel: Mutex<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
    signals: Mutex<Signals>,
    numbers: AtomicU64,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("process", &self.process.id()).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unusable(reason: impl Into<String>) -> LaunchError {
    LaunchError::ForkServer { reason: reason.into() }
}

fn system(action: &'static str) -> impl Fn(std::io::Error) -> LaunchError {
    move |source| LaunchError::System { action, source }
}

impl Server {
    pub(super) fn start(launch: Launch, program: &PythonProgram, packages: &[String]) -> Result<Self, LaunchError> {
        let mut launch = launch;
        loop {
            launch = launch.for_a_server();
            launch.check_network()?;
            let started = Self::start_once(&launch, program, packages);
            if !launch.private_view().is_some_and(PrivateView::was_refused) {
                return started;
            }
            launch = launch.one_floor_down();
        }
    }

    fn start_once(launch: &Launch, program: &PythonProgram, packages: &[String]) -> Result<Self, LaunchError> {
        processes::become_subreaper().map_err(system("become the parent of orphaned processes"))?;
        let (ours, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
        let arguments: Vec<&str> = program.options.iter().map(String::as_str).chain(["-c", START]).collect();
        let mark = OsString::from(random_name());
        let watchdog = Watchdog::over(&mark);
        let launch = launch.instead(arguments);
        let mut command = command(&launch)?;
        // A group of its own: a signal of the terminal is for us, and we end the runs.
        command.env(MARK_VARIABLE, &mark).stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        let (process, helper) = processes::spawn_helper(&mut command)
            .map_err(|source| crate::program::spawn_error(launch.program_path(), &source))?;
        drop(command);
        let mut server = Self {
            process,
            _helper: helper,
            _watchdog: watchdog,
            mark,
            view: None,
            channel: Mutex::new(ours.try_clone().map_err(system("copy a socket"))?),
            waiting: Arc::default(),
            signals: Mutex::default(),
            numbers: AtomicU64::new(0),
        };
        let mut answers = BufReader::new(ours);
        server.prepare(&mut answers, program, packages)?;
        server.view = launch.private_view().filter(|view| view.was_made() && !view.is_fence()).cloned();
        let waiting = Arc::clone(&server.waiting);
        std::thread::Builder::new()
            .name("fork server".to_owned())
            .spawn(move || dispatch(answers, &waiting))
            .map_err(system("start a thread"))?;
        Ok(server)
    }

    /// Has the imports made. Signals are as usual meanwhile: they end this process and all below it.
    fn prepare(
        &mut self,
        answers: &mut BufReader<UnixStream>,
        program: &PythonProgram,
        packages: &[String],
    ) -> Result<(), LaunchError> {
        let (script, module) = target(program);
        self.send(&Request::Import { script, module, packages })?;
        let stream = answers.get_ref().try_clone().map_err(system("copy a socket"))?;
        stream.set_read_timeout(Some(LOOK * 10)).map_err(system("wait on a socket"))?;
        let (mut line, mut clock) = (Vec::new(), OwnTime::start());
        let pid = i32::try_from(self.process.id()).unwrap_or(0);
        loop {
            match answers.read_until(b'\n', &mut line) {
                Ok(_) => break,
                // What has come of the line by then stays in it.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if clock.until(Instant::now(), || vec![pid]) >= LONGEST_IMPORT {
                        return Err(unusable("it imports without an end"));
                    }
                }
                Err(error) => return Err(unusable(error.to_string())),
            }
        }
        stream.set_read_timeout(None).map_err(system("wait on a socket"))?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Ready { ready: Ready { problem: None } }) => Ok(()),
            Ok(Answer::Ready { ready: Ready { problem: Some(problem) } }) => Err(unusable(problem)),
            _ => Err(unusable("it ended while it imported")),
        }
    }

    fn send(&self, request: &Request<'_>) -> Result<(), LaunchError> {
        let mut line = serde_json::to_vec(request).map_err(|error| unusable(error.to_string()))?;
        line.push(b'\n');
        locked(&self.channel).write_all(&line).map_err(|error| unusable(error.to_string()))
    }

    pub(super) fn run(&self, run: &ForkedRun<'_>) -> Result<Forked, LaunchError> {
        // A child would see the server's view.
        let (view, base) = match (&self.view, run.launch.private_view()) {
            (None, Some(fence)) if fence.is_fence() => {
                let plan = fence.write().map_err(system("write to the run folder"))?;
                let Ok(plan) = plan.into_os_string().into_string() else { return Ok(Forked::NeedsAProcess) };
                (Some(plan), None)
            }
            // The kernel has refused the server view and fence, and gives the child none.
            (None, _) => (None, None),
            (Some(_), None) => return Ok(Forked::NeedsAProcess),
            (Some(server), Some(child)) => {
                let plan = child.clone().inside(server).write().map_err(system("write to the run folder"))?;
                let base = server.real_root();
                let plan = base.join(plan.strip_prefix("/").unwrap_or(&plan));
                let text = |path: std::path::PathBuf| path.into_os_string().into_string();
                let (Ok(plan), Ok(base)) = (text(plan), text(base)) else { return Ok(Forked::NeedsAProcess) };
                (Some(plan), Some(base))
            }
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, news) = channel();
        {
            let mut waiting = locked(&self.waiting);
            if waiting.gone {
                return Err(unusable("it is gone"));
            }
            waiting.runs.insert(number, sender);
        }
        let _signals = Listening::start(&self.signals)?;
        // It knows the folders there are now, this run's among them.
        let _watchdog = Watchdog::over(&self.mark);
        let tail = (run.output == Output::Capture).then(|| run.folder.path().join(TAIL_FILE));
        let (script, module) = target(run.program);
        let folder = run.folder.path().to_str().ok_or_else(|| unusable("the run folder's name is not valid UTF-8"))?;
        let mut environment: BTreeMap<&str, &str> =
            run.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        environment.insert(oomph_protocol::paths::RUN_VARIABLE, folder);
        let of_view = run.launch.private_view().map(PrivateView::variables).unwrap_or_default();
        let of_view = of_view.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
        environment.extend(of_view);
        let start = Instant::now();
        self.send(&Request::Run {
            number,
            argv: run.program.argv(),
            command: run.program.command(),
            script,
            module,
            environment,
            output: match run.output {
                Output::Inherit => "inherit",
                Output::StdoutToStderr => "stderr",
                Output::Discard | Output::Capture => "discard",
            },
            tail: tail.as_ref().map(|path| path.to_string_lossy().into_owned()),
            view,
            base,
        })?;
        // Something of oomph's own died in the program, which may wait without end for it.
        let fault = run.folder.path().join(oomph_protocol::paths::FAULT);
        let is_over = |passed: Duration, own: Duration| {
            run.limits.clock.is_some_and(|limit| passed >= limit)
                || run.limits.own.is_some_and(|limit| limit.is_used_up(own))
                || fault.exists()
        };
        let ended = self.wait(&news, start, run.launch.ends_what_waits(), &is_over);
        locked(&self.waiting).runs.remove(&number);
        let ended = ended?;
        if let Some(refused) = refusal(run.folder.path()) {
            return Ok(refused);
        }
        Ok(Forked::Ran(Outcome {
            exit: exit_of(ended.status),
            elapsed: ended.at.saturating_duration_since(start),
            own: ended.own,
            timed_out: ended.timed_out,
            waited: ended.waited,
            waits: ended.waits.map(|since| Waits { since, place: None }),
            given_up: ended.waits.is_some() && !ended.timed_out,
            interrupted: ended.interrupted,
            stderr_tail: tail.map(|path| tail_of(&path)).unwrap_or_default(),
        }))
    }

    /// Waits for a child's end, and ends it when `is_over` says so or a signal came.
    fn wait(
        &self,
        news: &Receiver<News>,
        start: Instant,
        ends_servers: bool,
        is_over: &dyn Fn(Duration, Duration) -> bool,
    ) -> Result<Ended, LaunchError> {
        let mut session = None;
        let mut waiting = None;
        let mut clock = OwnTime::start();
        let mut kill_at: Option<Duration> = None;
        let mut ended = Ended {
            status: ExitStatus::from_raw(0),
            at: start,
            own: Duration::ZERO,
            timed_out: false,
            waited: false,
            waits: None,
            interrupted: None,
        };
        loop {
            match news.recv_timeout(LOOK) {
                Ok(News::Started(pid)) => session = Some(pid),
                Ok(News::Ended(status)) => {
                    ended.status = ExitStatus::from_raw(status);
                    ended.at = Instant::now();
                    ended.own = clock.end(ended.at);
                    session.into_iter().for_each(processes::wind_down_session);
                    return Ok(ended);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    session.into_iter().for_each(|session| processes::signal_session(session, Signal::KILL));
                    return Err(unusable("it is gone"));
                }
            }
            let now = Instant::now();
            if ended.interrupted.is_none() {
                ended.interrupted = locked(&self.signals).look();
            }
            let Some(session) = session else {
                // Forking takes milliseconds; a server that does not do it does nothing.
                match ended.interrupted {
                    Some(_) => return Ok(ended),
                    None if start.elapsed() < LONGEST_FORK => continue,
                    None => return Err(unusable("it does not answer")),
                }
            };
            let own = clock.until(now, || processes::session(session));
            ended.timed_out |= is_over(now.saturating_duration_since(start), own);
            if kill_at.is_none() {
                let waiting = waiting.get_or_insert_with(|| Rest::of(session));
                match waiting.look(now, || processes::session(session)) {
                    Seen::Works | Seen::Rests => ended.waits = None,
                    Seen::Serves => ended.waited = ends_servers,
                    Seen::Waits(since) => ended.waits = Some(since).filter(|_| ended.timed_out),
                    Seen::IsGivenUp(since) => ended.waits = Some(since).filter(|_| ends_servers || ended.timed_out),
                }
            }
            let waits = ended.waited || ended.waits.is_some();
            if (ended.timed_out || waits || ended.interrupted.is_some()) && kill_at.is_none() {
                processes::signal_session(session, Signal::TERM);
                kill_at = Some(own + crate::supervise::GRACE);
            }
            if kill_at.is_some_and(|at| at <= own) {
                processes::signal_session(session, Signal::KILL);
            }
        }
    }
}

/// How a child ended.
struct Ended {
    status: ExitStatus,
    at: Instant,
    own: Duration,
    timed_out: bool,
    /// It is a server that was ready.
    waited: bool,
    /// For how long it had waited for anything else.
    waits: Option<Duration>,
    interrupted: Option<i32>,
}

fn target(program: &PythonProgram) -> (Option<&str>, Option<&str>) {
    match &program.target {
        Target::Script(path) => (Some(path), None),
        Target::Module(name) => (None, Some(name)),
    }
}

/// Hands each answer to the run that waits for it.
fn dispatch(answers: BufReader<UnixStream>, waiting: &Mutex<Waiting>) {
    for line in answers.lines() {
        let Ok(answer) = line.map_err(drop).and_then(|line| serde_json::from_str(&line).map_err(drop)) else { break };
        let (number, news) = match answer {
            Answer::Started { started, pid } => (started, News::Started(pid)),
            Answer::Ended { ended, status } => (ended, News::Ended(status)),
            Answer::Ready { .. } => continue,
        };
        if let Some(run) = locked(waiting).runs.get(&number) {
            // A run that was given up listens no more.
            let _ = run.send(news);
        }
    }
    let mut waiting = locked(waiting);
    waiting.gone = true;
    waiting.runs.clear();
}

impl Signals {
    /// The signal that ends all runs, if one came.
    fn look(&mut self) -> Option<i32> {
        if let Some(subscription) = &self.subscription {
            for event in subscription.events().try_iter() {
                match event {
                    // What a run sends to itself does not reach us: it is in a session of its own.
                    Event::End { signal, .. } => self.interrupted = self.interrupted.or(Some(signal)),
                    Event::Child => drop(processes::descendants(None)),
                    Event::PassOn(_) => {}
                }
            }
        }
        self.interrupted
    }
}

/// Signals go to the server's runs until the last of these is dropped.
struct Listening<'a>(&'a Mutex<Signals>);

impl<'a> Listening<'a> {
    fn start(signals: &'a Mutex<Signals>) -> Result<Self, LaunchError> {
        let mut state = locked(signals);
        if state.subscription.is_none() {
            state.subscription = Some(Subscription::start()?);
        }
        state.runs += 1;
        drop(state);
        Ok(Self(signals))
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut state = locked(self.0);
        state.runs -= 1;
        if state.runs == 0 {
            state.subscription = None;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of the socket is its word to end; it takes its children along.
        let _ = locked(&self.channel).shutdown(std::net::Shutdown::Both);
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            if matches!(self.process.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

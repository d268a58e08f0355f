//! Runs `oomph` once: starts it, waits with a limit, and keeps its output and its cost.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::binary;

/// Long enough for the first run of a torch version, which downloads a few gigabytes.
const LIMIT: Duration = Duration::from_secs(900);

/// Programs that need much host memory or both cores take this for writing, all others for reading.
static MACHINE: RwLock<()> = RwLock::new(());

/// How a run shares the machine with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// In parallel with others.
    #[default]
    Shared,
    /// With the machine to itself.
    Alone,
}

impl Turn {
    /// Waits for it.
    pub fn take(self) -> Guard {
        match self {
            Self::Shared => Guard::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)),
            Self::Alone => Guard::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Held while a run goes on, and never looked at.
#[derive(Debug)]
pub enum Guard {
    /// Others may hold theirs.
    Shared(#[allow(dead_code)] RwLockReadGuard<'static, ()>),
    /// No other is held.
    Alone(#[allow(dead_code)] RwLockWriteGuard<'static, ()>),
}

/// A version of PyTorch with everything that the programs import, so that a version needs one environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torch {
    /// A short name, used in the names of tests.
    pub name: &'static str,
    /// What is installed, one requirement a line.
    pub requirements: &'static str,
}

/// The newest version: every program runs with it.
pub const TORCH_2_15: Torch =
    Torch { name: "torch-2.15", requirements: include_str!("../../requirements/torch-2.15.txt") };

/// An older one, built for CUDA 12: a part of the programs runs with it.
pub const TORCH_2_6: Torch =
    Torch { name: "torch-2.6", requirements: include_str!("../../requirements/torch-2.6.txt") };

/// No PyTorch, but NVIDIA's compiler and the shared CUDA runtime.
pub const CUDA_13_2: Torch =
    Torch { name: "cuda-13.2", requirements: include_str!("../../requirements/cuda-13.2.txt") };

/// The same with the libraries that programs in Rust are linked against, and NVRTC.
pub const CUDA_13_2_DEVEL: Torch =
    Torch { name: "cuda-13.2-devel", requirements: include_str!("../../requirements/cuda-13.2-devel.txt") };

/// No PyTorch, but JAX with the plugin for CUDA 13.
pub const JAX: Torch = Torch { name: "jax-0.10", requirements: include_str!("../../requirements/jax-0.10.txt") };

/// No PyTorch, but TensorFlow with its CUDA 12 libraries, and Keras.
pub const TENSORFLOW: Torch =
    Torch { name: "tensorflow-2.21", requirements: include_str!("../../requirements/tensorflow-2.21.txt") };

/// No PyTorch, but ONNX Runtime with its CUDA 13 libraries, and what makes models for it.
pub const ONNXRUNTIME: Torch =
    Torch { name: "onnxruntime-1.31", requirements: include_str!("../../requirements/onnxruntime-1.31.txt") };

/// No PyTorch, but Numba with the compiler of CUDA 12.
pub const NUMBA: Torch = Torch { name: "numba-0.68", requirements: include_str!("../../requirements/numba-0.68.txt") };

/// Names an interpreter whose environment has all that the suites by hand import.
pub const PYTHON_BY_HAND: &str = "OOMPH_ANSWERS";

/// The interpreter of the suites by hand, where one was named.
pub fn python_by_hand() -> Option<String> {
    std::env::var(PYTHON_BY_HAND).ok()
}

/// What is to be run.
#[derive(Debug)]
pub struct Run {
    command: Command,
    input: Vec<u8>,
    turn: Turn,
    folder: tempfile::TempDir,
}

impl Run {
    /// `oomph dry-run`, in an empty folder of its own, on nothing yet.
    pub fn dry_run() -> Result<Self> {
        Self::command("dry-run")
    }

    /// Another command of `oomph` that runs programs, likewise.
    pub fn command(name: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(binary::oomph());
        command.arg(name).current_dir(folder.path());
        without_settings(&mut command);
        Ok(Self { command, input: Vec::new(), turn: Turn::Shared, folder })
    }

    /// `oomph dry-run --gpu GPU --format json --until-exit --with ... `, for a program of `acceptance/programs`.
    pub fn json(gpu: &str, torch: Torch) -> Result<Self> {
        Ok(Self::dry_run()?.args(["--gpu", gpu, "--format", "json"]).with(torch))
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Adds the requirements of a PyTorch version.
    pub fn with(mut self, torch: Torch) -> Self {
        for requirement in torch.requirements.lines() {
            self.command.args(["--with", requirement]);
        }
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// What the program reads.
    pub fn input(mut self, bytes: &[u8]) -> Self {
        self.input = bytes.to_vec();
        self
    }

    /// Whether others may run at the same time.
    pub fn turn(mut self, turn: Turn) -> Self {
        self.turn = turn;
        self
    }

    /// The command that is measured: `-- python <program> <arguments>`, the program named from `acceptance/programs`
    /// or, with a slash, from the repository's root.
    pub fn program(self, words: &[&str]) -> Self {
        let (script, rest) = words.split_first().expect("a program has a name");
        let path = if script.contains('/') { binary::root().join(script) } else { binary::programs().join(script) };
        self.args(["--", "python"]).args([path]).args(rest)
    }

    /// The folder that it runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs it to its end. Its folder stays until the run is dropped.
    pub fn finish(&mut self) -> Result<Finished> {
        self.start()?.finish()
    }

    /// Starts it in a process group of its own and leaves it running.
    pub fn start(&mut self) -> Result<Started> {
        let (turn, line, input) = (self.turn.take(), self.line(), std::mem::take(&mut self.input));
        start(&mut self.command, line, input, Some(turn))
    }

    fn line(&self) -> String {
        let words: Vec<_> = self.command.get_args().map(OsStr::to_string_lossy).collect();
        format!("oomph {}", words.join(" "))
    }
}

/// Takes away what a developer has set, which would change figures.
pub fn without_settings(command: &mut Command) {
    for name in ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "OOMPH_RUN"] {
        command.env_remove(name);
    }
    // No program needs the Hub, and none may wait for it.
    command.env("HF_HUB_OFFLINE", "1");
}

/// Starts a command in a process group of its own, with this on its standard input; `line` names it in messages.
pub fn start(command: &mut Command, line: String, input: Vec<u8>, turn: Option<Guard>) -> Result<Started> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {line}"))?;
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    // A program that does not read its input is allowed, so a broken pipe says nothing.
    std::thread::spawn(move || stdin.write_all(&input).ok());
    let stdout = drain(child.stdout.take().context("stdout is piped")?);
    let stderr = drain(child.stderr.take().context("stderr is piped")?);
    Ok(Started { line, child, stdout, stderr, begun: Instant::now(), _turn: turn })
}

/// The Python of an environment with these requirements.
pub fn python_with(requirements: Torch) -> Result<String> {
    let question = r#"exec python -c 'import sys; print("python=" + sys.executable)'"#;
    let asked = Run::dry_run()?.args(["--vram", "8GiB", "--no-probe"]).with(requirements);
    asked.args(["--", "sh", "-c", question]).finish()?.printed("python")
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).ok();
        bytes
    })
}

/// A run that goes on.
#[derive(Debug)]
pub struct Started {
    line: String,
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
    begun: Instant,
    _turn: Option<Guard>,
}

impl Started {
    /// Sends a signal to `oomph` alone.
    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Sends a signal to the whole process group, as the terminal does on Ctrl-C.
    pub fn signal_group(&self, signal: i32) {
        send(-self.pid(), signal);
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id fits pid_t")
    }

    /// Waits for the end. Past the limit it is ended, and that is an error.
    pub fn finish(self) -> Result<Finished> {
        let left = LIMIT.saturating_sub(self.begun.elapsed());
        self.finish_within(left)
    }

    /// Waits for the end, for at most so long from now on.
    pub fn finish_within(self, limit: Duration) -> Result<Finished> {
        let waiting = Instant::now();
        let (status, max_rss_bytes) = loop {
            if let Some(ended) = reap(self.pid())? {
                break ended;
            }
            if waiting.elapsed() > limit {
                self.signal_group(libc::SIGKILL);
                reap_blocking(self.pid());
                bail!("{} did not end within {} s", self.line, self.begun.elapsed().as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let wall = self.begun.elapsed();
        let text = |handle: JoinHandle<Vec<u8>>| handle.join().unwrap_or_default();
        Ok(Finished {
            line: self.line,
            status,
            stdout: text(self.stdout),
            stderr: text(self.stderr),
            wall,
            max_rss_bytes,
        })
    }
}

/// Sends a signal to a process, or with a negative number to a group. The kernel checks both numbers; a process that
/// has ended is not an error here.
pub fn send(pid: i32, signal: i32) {
    // SAFETY: `kill` takes two integers and touches no memory of ours.
    unsafe { libc::kill(pid, signal) };
}

/// The status of an ended child and the most memory that it or any of its descendants had.
fn reap(pid: i32) -> Result<Option<(ExitStatus, u64)>> {
    wait(pid, libc::WNOHANG)
}

fn reap_blocking(pid: i32) {
    wait(pid, 0).ok();
}

fn wait(pid: i32, options: i32) -> Result<Option<(ExitStatus, u64)>> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`, a structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live variables of the right types.
    let answer = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
    match answer {
        0 => Ok(None),
        answer if answer == pid => {
            let kibibytes = u64::try_from(usage.ru_maxrss).unwrap_or(0);
            Ok(Some((ExitStatus::from_raw(status), kibibytes * 1024)))
        }
        _ => Err(std::io::Error::last_os_error()).context("waiting for oomph"),
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    line: String,
    /// How `oomph` ended.
    pub status: ExitStatus,
    /// What `oomph` wrote on stdout.
    pub stdout: Vec<u8>,
    /// What `oomph` wrote on stderr, with the program's output in between.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub wall: Duration,
    /// The most memory that any one of the processes had.
    pub max_rss_bytes: u64,
}

impl Finished {
    /// The one document on stdout.
    pub fn report(&self) -> Result<Value> {
        serde_json::from_slice(&self.stdout).with_context(|| format!("stdout is not JSON document\n{}", self.story()))
    }

    /// The last `name=value` line that the program printed.
    pub fn printed(&self, name: &str) -> Result<String> {
        let prefix = format!("{name}=");
        let find = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.lines().rev().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
        };
        find(&self.stderr)
            .or_else(|| find(&self.stdout))
            .with_context(|| format!("the program did not print {prefix}\n{}", self.story()))
    }

    /// The same as a number.
    pub fn printed_number(&self, name: &str) -> Result<u64> {
        let text = self.printed(name)?;
        text.trim().parse().with_context(|| format!("{name}={text} is not a number"))
    }

    /// Everything that one wants to see when a test fails.
    pub fn story(&self) -> String {
        format!(
            "$ {}\n-> {}\n--- stdout\n{}\n--- stderr (end)\n{}",
            self.line,
            self.status,
            tail(&self.stdout),
            tail(&self.stderr)
        )
    }

    /// Fails, telling the story, unless the condition holds.
    pub fn ensure(&self, condition: bool, what: impl std::fmt::Display) -> Result<()> {
        if condition { Ok(()) } else { bail!("{what}\n{}", self.story()) }
    }
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// All files below a folder with their contents, and the folders and links, to see whether anything was changed.
pub fn tree(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path)? {
            let path = entry?.path();
            let kind = path.symlink_metadata()?.file_type();
            let contents = if kind.is_symlink() {
                let target: OsString = std::fs::read_link(&path)?.into();
                target.into_encoded_bytes()
            } else if kind.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else {
                std::fs::read(&path)?
            };
            found.push((path, contents));
        }
    }
    found.sort();
    Ok(found)
}

/// Lets Ctrl-C end what is started from here on. A shell makes its background jobs ignore it, their children inherit
/// that, and oomph keeps ignoring the signals that were ignored when it was started.
pub fn heed_ctrl_c() {
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// Processes whose environment holds `text`.
pub fn processes_with(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let folder = entry.path();
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        if environment.windows(text.len()).any(|window| window == text.as_bytes()) {
            let command = std::fs::read(folder.join("cmdline")).unwrap_or_default();
            found.push(format!("{}: {}", folder.display(), String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

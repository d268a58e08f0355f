//! The machine of someone who reads a page: a folder with the files that pages speak of, and a shell that finds `oomph` and a
//! Python with PyTorch.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::binary;
use crate::run::{self, Finished, Started, TORCH_2_15, python_by_hand, python_with};

/// The most that a line may take. The longest downloads PyTorch, where `--with` names it.
const LIMIT: Duration = Duration::from_secs(900);

/// How long a program that runs meanwhile may take to its first steps.
const START: Duration = Duration::from_secs(600);

/// What opens a page in place of a browser: it takes the page away, because `oomph view` leaves it.
const BROWSER: &str = "#!/bin/sh\nmv \"$1\" opened.html\n";

/// The folder and what a shell in it finds.
#[derive(Debug)]
pub struct Reader {
    folder: tempfile::TempDir,
    path: String,
    /// The process that pages call 4711.
    pid: Option<String>,
}

impl Reader {
    /// A new one.
    pub fn new() -> Result<Self> {
        let python = PathBuf::from(python()?);
        let folder = tempfile::tempdir()?;
        let bin = folder.path().join("bin");
        fs::create_dir_all(&bin)?;
        fs::create_dir_all(folder.path().join("work"))?;
        symlink(binary::oomph().canonicalize()?, bin.join("oomph"))?;
        fs::write(bin.join("xdg-open"), BROWSER)?;
        fs::set_permissions(bin.join("xdg-open"), fs::Permissions::from_mode(0o755))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let environment = python.parent().context("the interpreter has no folder")?;
        let path = format!("{}:{}:{path}", bin.display(), environment.display());
        let reader = Self { folder, path, pid: None };
        reader.prepare(r#"cp -r "$ROOT"/acceptance/docs/files/. ."#)?;
        Ok(reader)
    }

    /// The folder that lines are run in.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Starts a line in a shell.
    pub fn start(&self, line: &str, input: &str) -> Result<Started> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.folder()).env("PATH", &self.path).env("ROOT", binary::root());
        run::without_settings(&mut command);
        if let Some(pid) = &self.pid {
            command.env("PID", pid);
        }
        // The environments of `--with` are kept for other tests; what lines change of the cache is not.
        if !line.contains(" --with ") {
            command.env("OOMPH_CACHE_DIR", self.folder.path().join("cache"));
        }
        command.env("COLUMNS", "100").env("BROWSER", "xdg-open").env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        // In a job of GitHub Actions these lines add nothing to its summary.
        command.env("GITHUB_STEP_SUMMARY", self.folder.path().join("summary.md"));
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "reader").env(format!("GIT_{who}_EMAIL"), "reader@localhost");
        }
        run::start(&mut command, line.to_owned(), input.as_bytes().to_vec(), None)
    }

    /// Runs a line to its end, or to Ctrl-C after so many seconds.
    pub fn run(&self, line: &str, input: &str, interrupt: Option<u64>) -> Result<Finished> {
        let started = self.start(line, input)?;
        if let Some(seconds) = interrupt {
            std::thread::sleep(Duration::from_secs(seconds));
            started.signal_group(libc::SIGINT);
        }
        started.finish_within(LIMIT)
    }

    /// Runs a line that prepares others.
    pub fn prepare(&self, line: &str) -> Result<()> {
        let finished = self.run(line, "", None)?;
        finished.ensure(finished.status.success(), "the page could not be prepared")
    }

    /// Starts the program that runs meanwhile. It writes its process id to `pid` and, once it has made a step, to `steps`.
    pub fn start_meanwhile(&mut self, line: &str) -> Result<Meanwhile> {
        let program = Meanwhile(Some(self.start(line, "")?));
        let begun = Instant::now();
        let size = |name: &str| fs::metadata(self.folder().join(name)).map_or(0, |file| file.len());
        while size("pid") == 0 || size("steps") == 0 {
            if begun.elapsed() > START {
                let story = program.end().map_or_else(|error| format!("{error:#}"), |finished| finished.story());
                return Err(anyhow!("the program that runs meanwhile made no step\n{story}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.pid = Some(fs::read_to_string(self.folder().join("pid"))?.trim().to_owned());
        Ok(program)
    }
}

/// A program that runs meanwhile, until it is dropped.
#[derive(Debug)]
pub struct Meanwhile(Option<Started>);

impl Meanwhile {
    /// Ends it.
    pub fn end(mut self) -> Result<Finished> {
        let started = self.0.take().context("it was ended")?;
        started.signal_group(libc::SIGTERM);
        started.finish_within(Duration::from_secs(300))
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        if let Some(started) = self.0.take() {
            started.signal_group(libc::SIGKILL);
        }
    }
}

/// A Python with PyTorch.
fn python() -> Result<&'static str> {
    static PYTHON: OnceLock<Result<String, String>> = OnceLock::new();
    let found = PYTHON.get_or_init(|| {
        let made = || python_with(TORCH_2_15).map_err(|error| format!("{error:#}"));
        python_by_hand().map_or_else(made, Ok)
    });
    let python = found.as_ref().map_err(|error| anyhow!("{error}"))?;
    ensure!(Path::new(python).is_file(), "{python} is not there");
    Ok(python)
}

/// Whether this machine has an NVIDIA GPU.
pub fn has_gpu() -> bool {
    ["/dev/nvidiactl", "/dev/dxg"].iter().any(|device| Path::new(device).exists())
}

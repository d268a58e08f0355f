//! What the integration tests share: a place of their own, and the fixture in it.

#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder that takes the place of the temporary folder, the runtime folder and the cache of one test.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tmp", "run", "cache", "work"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The fixture with these arguments.
    pub fn fixture(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oomph-launch-fixture"));
        command
            .args(arguments)
            .current_dir(self.path("work"))
            .env("TMPDIR", self.path("tmp"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("OOMPH_CACHE_DIR", self.path("cache"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the fixture to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.fixture(arguments).output().unwrap()
    }

    /// Starts the fixture with its output thrown away.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.fixture(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The text of a file in the working folder, once a program has written it.
    pub fn wait_for(&self, name: &str) -> String {
        let path = self.path("work").join(name);
        wait_until(&format!("{name} is written"), || {
            std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        })
    }

    /// The process whose number a program wrote to a file.
    pub fn wait_for_pid(&self, name: &str) -> i32 {
        self.wait_for(name).trim().parse().unwrap()
    }

    pub fn assert_no_run_folder(&self) {
        for base in ["tmp", "run"] {
            let left: Vec<_> = std::fs::read_dir(self.path(base)).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

/// A guard against a test that hangs, and nothing that a test measures: on a busy machine everything takes long.
const HANGS: Duration = Duration::from_secs(600);

pub fn wait_until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + HANGS;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn wait_for_end(child: &mut Child) -> ExitStatus {
    wait_until("the fixture ends", || child.try_wait().unwrap())
}

pub fn signal(pid: i32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), "--", &pid.to_string()]).status().unwrap().success());
}

pub fn exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

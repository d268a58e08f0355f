//! Attachments to real interpreters. `OOMPH_ATTACH_PYTHONS=PATH:PATH...` names them (`python3` without it), and
//! `OOMPH_ATTACHMENTS=N` says how often each program is attached to.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use oomph_attach::{AttachError, Errand, Ladder, Rung, Target};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs.py");
const LIMIT: Duration = Duration::from_secs(10);

/// Takes the order and answers with the number of the thread that it ran in.
const SCRIPT: &str = r#"
def run():
    import os, threading
    try:
        os.rename(FOLDER + "/order.json", FOLDER + "/taken.json")
    except OSError:
        return
    with open(FOLDER + "/answer.part", "w") as file:
        file.write("main" if threading.current_thread() is threading.main_thread() else "other")
    os.rename(FOLDER + "/answer.part", FOLDER + "/answer.json")
run()
"#;

struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    fn start(python: &str, kind: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut words = python.split(' ');
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .args([PROGRAMS, kind])
            .arg(folder.path().join("end"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, stdout, folder }
    }

    fn attach(&self) -> Result<(String, Rung), AttachError> {
        let target = Target::look(self.child.id())?;
        let ladder = Ladder::of(&target);
        let errand = Errand::create(&target, SCRIPT, &[], b"{}")?;
        let rung = ladder.send(&target, &errand, LIMIT)?;
        let answer = errand.wait(Instant::now() + LIMIT)?.expect("an answer");
        Ok((String::from_utf8(answer).unwrap(), rung))
    }

    /// The program's own verdict on what it computed.
    fn end(mut self) {
        // Where it looks for the file, which may be a root of its own.
        let end = self.folder.path().join("end");
        let inside = format!("/proc/{}/root{}", self.child.id(), end.display());
        std::fs::create_dir_all(std::path::Path::new(&inside).parent().unwrap()).unwrap();
        std::fs::write(inside, "").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let status = self.child.wait().unwrap();
        assert!(line.starts_with("right") && status.success(), "{status}: {line}");
    }
}

fn pythons() -> Vec<String> {
    match std::env::var("OOMPH_ATTACH_PYTHONS") {
        Ok(list) => list.split(':').map(str::to_owned).collect(),
        Err(_) => vec!["python3".to_owned()],
    }
}

fn times() -> usize {
    std::env::var("OOMPH_ATTACHMENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

#[test]
fn programs_compute_what_they_would() {
    for python in pythons() {
        for kind in ["alone", "reals", "threads", "joins"] {
            let program = Program::start(&python, kind);
            let mut rungs = Vec::new();
            let mut took = Vec::new();
            for _ in 0..times() {
                let start = Instant::now();
                let (answer, rung) = program.attach().unwrap_or_else(|error| panic!("{python} {kind}: {error}"));
                assert_eq!(answer, "main", "{python} {kind}");
                took.push(start.elapsed());
                rungs.push(rung);
            }
            took.sort_unstable();
            println!(
                "{python} {kind}: {} by {}, {:?} in the middle, {:?} at most",
                rungs.len(),
                rungs[0].id(),
                took[took.len() / 2],
                took.last().unwrap()
            );
            program.end();
        }
    }
}

#[test]
fn a_script_that_comes_too_late_does_not_run() {
    for python in pythons() {
        let program = Program::start(&python, "sleeps");
        let target = Target::look(program.child.id()).unwrap();
        let errand = Errand::create(&target, SCRIPT, &[], b"{}").unwrap();
        match Ladder::of(&target).send(&target, &errand, Duration::from_millis(500)) {
            Err(error @ AttachError::TimedOut { .. }) => assert!(error.to_string().contains("sleeps"), "{error}"),
            // Some interpreters run scripts in the middle of a sleep.
            other => drop(other.unwrap()),
        }
        let taken = errand.is_taken();
        program.end();
        assert_eq!(errand.is_taken(), taken);
    }
}

/// Says of an attacher's process which target it is for; the next test is that process then.
const KILLED: &str = "OOMPH_ATTACH_KILLED";

/// Attaches until it is killed. Without the variable there is nothing to do.
#[test]
fn the_attacher_that_is_killed() {
    let Some(pid) = std::env::var(KILLED).ok().and_then(|pid| pid.parse().ok()) else { return };
    loop {
        let target = Target::look(pid).unwrap();
        let errand = Errand::create(&target, SCRIPT, &[], b"{}").unwrap();
        Ladder::of(&target).send(&target, &errand, LIMIT).unwrap();
    }
}

/// Killed at any point, the attacher leaves a program that goes on and computes what it would, and that the next one can
/// attach to.
#[test]
fn a_killed_attacher_harms_nobody() {
    let kills = std::env::var("OOMPH_ATTACH_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    for python in pythons() {
        for kind in ["alone", "reals", "threads"] {
            let program = Program::start(&python, kind);
            for kill in 0..kills {
                let mut attacher = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "the_attacher_that_is_killed"])
                    .env(KILLED, program.child.id().to_string())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                // From before its first system call to after some whole attachments.
                std::thread::sleep(Duration::from_micros(500 + (kill * 7919) % 150_000));
                attacher.kill().unwrap();
                attacher.wait().unwrap();
            }
            let (answer, _) = program.attach().unwrap_or_else(|error| panic!("{python} {kind}: {error}"));
            assert_eq!(answer, "main", "{python} {kind}");
            program.end();
        }
    }
}

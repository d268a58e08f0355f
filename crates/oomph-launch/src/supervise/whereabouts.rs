//! Asks the Python processes of a run where their main threads are, by a signal whose handler writes a stack into the run folder
//! (`python/oomph/whereabouts.py`).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use oomph_protocol::paths;

use super::Place;
use crate::processes;

/// The signal: one that Linux defines and never sends (SIGSTKFLT).
const SIGNAL: i32 = 16;

/// How long an answer may take: an interpreter that is at rest writes it in microseconds.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The longest answer that is read, in bytes.
const LONGEST: usize = 64 << 10;

/// Where the first of some processes is that can say it: the user's innermost line of its main thread.
pub(crate) fn ask(folder: &Path, living: &[i32]) -> Option<Place> {
    living.iter().filter(|pid| answers(**pid)).find_map(|pid| ask_one(folder, *pid))
}

/// Whether a process has a handler for the signal, which would end it otherwise.
fn answers(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (SIGNAL - 1) & 1 == 1
}

fn ask_one(folder: &Path, pid: i32) -> Option<Place> {
    let path = folder.join(paths::WHERE);
    let before = usize::try_from(fs::metadata(&path).ok()?.len()).ok()?;
    processes::send(pid, SIGNAL);
    let until = Instant::now() + TIMEOUT;
    let mut seen = before;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let text = fs::read(&path).ok()?;
        // Twice the same length: it is written line by line.
        if text.len() > before && text.len() == seen {
            let answer = text.get(before..text.len().min(before + LONGEST))?;
            return parse(&String::from_utf8_lossy(answer));
        }
        seen = text.len();
        if Instant::now() >= until {
            return None;
        }
    }
}

/// Reads a stack of `faulthandler`'s, the innermost line first.
fn parse(answer: &str) -> Option<Place> {
    let frames: Vec<(&str, u32, &str)> = answer.lines().filter_map(frame).collect();
    let own = frames.iter().position(|(file, ..)| !is_library(file))?;
    let (file, line, function) = frames[own];
    // What the user's line called, by the name of its module.
    let called = own.checked_sub(1).map(|at| frames[at]).map(|(file, _, function)| {
        let module = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        format!("{module}.{function}")
    });
    Some(Place { file: file.to_owned(), line, function: function.to_owned(), called })
}

fn frame(line: &str) -> Option<(&str, u32, &str)> {
    let rest = line.trim_start().strip_prefix("File \"")?;
    let (file, rest) = rest.rsplit_once("\", line ")?;
    let (number, function) = rest.split_once(" in ")?;
    Some((file, number.parse().ok()?, function.trim()))
}

/// Whether a file is Python's own, a library's or ours.
fn is_library(file: &str) -> bool {
    let of_python = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    let of_interpreter = file.split("/lib/python").skip(1).any(of_python);
    of_interpreter
        || file.starts_with("<frozen")
        || ["/site-packages/", "/dist-packages/", "/oomph/"].iter().any(|folder| file.contains(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_line_of_the_user_is_where_it_waits() {
        let answer = "Stack (most recent call first):\n  \
                      File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n  \
                      File \"/usr/lib/python3.11/queue.py\", line 171 in get\n  \
                      File \"/home/me/serve \"it\".py\", line 6 in work\n  \
                      File \"/home/me/serve.py\", line 9 in <module>\n";
        let place = parse(answer).unwrap();
        assert_eq!((place.file.as_str(), place.line, place.function.as_str()), ("/home/me/serve \"it\".py", 6, "work"));
        assert_eq!(place.called.as_deref(), Some("queue.get"));
    }

    #[test]
    fn a_wait_of_the_interpreters_own_has_no_module() {
        let place = parse("  File \"a.py\", line 3 in <module>\n").unwrap();
        assert_eq!((place.line, place.called), (3, None));
        assert_eq!(parse("  File \"/v/lib/python3.12/site-packages/a.py\", line 3 in f\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_without_the_handler_is_not_signalled() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        assert!(!answers(me) && !answers(0));
    }
}

//! Programs under supervision: their output, their status, their signals, and that nothing of them remains.

#![cfg(target_os = "linux")]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, exists, signal, text, wait_for_end};

/// A program that starts a child in a session of its own. Both ignore what can be ignored.
const STUBBORN: &str = r#"
import os, signal, time
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
def note(name):
    open(name + ".tmp", "w").write(str(os.getpid()) + "\n")
    os.rename(name + ".tmp", name)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note("grandchild")
    else:
        note("child")
    time.sleep(600)
note("main")
time.sleep(600)
"#;

/// A program that ends at the first signal, and whose child does not.
const TIDY: &str = r#"
import os, signal, sys, time
def note(name, value):
    open(name + ".tmp", "w").write(str(value) + "\n")
    os.rename(name + ".tmp", name)
if os.fork() == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("child", os.getpid())
    time.sleep(600)
count = 0
def stop(number, frame):
    global count
    count += 1
    time.sleep(0.3)
    note("signals", count)
    sys.exit(7)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)
note("main", os.getpid())
time.sleep(600)
"#;

fn pid(child: &std::process::Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

#[test]
fn status_and_output_pass_through() {
    let place = Place::new();
    let output = place.run(&["--", "sh", "-c", "echo out; echo err >&2; exit 41"]);
    assert_eq!(output.status.code(), Some(41));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("out\n", "err\n"));
    let output = place.run(&["--", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(output.status.code(), Some(128 + 11));
    place.assert_no_run_folder();
}

#[test]
fn standard_input_passes_through() {
    let place = Place::new();
    let mut child = place.fixture(&["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"typed").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "typed");
}

#[test]
fn a_document_has_standard_output_to_itself() {
    let output = Place::new().run(&["--json", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!(text(&output.stdout), "{\"status\":0}\n");
    assert_eq!(text(&output.stderr), "out\nerr\n");
}

#[test]
fn the_end_of_a_captured_output_is_kept() {
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done; echo out; exit 3";
    let output = Place::new().run(&["--capture", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3));
    let tail = text(&output.stdout);
    assert!(tail.ends_with("line 19999\n\n") && !tail.contains("line 1\n") && !tail.contains("out\n"));
    assert!(tail.len() < 70_000);
    assert!(output.stderr.is_empty());
}

#[test]
fn a_captured_output_does_not_wait_for_a_leftover() {
    let place = Place::new();
    // Nobody ends the leftover before it is asked to go.
    let script = "echo mine >&2; setsid sleep 100000 & echo $! > pid; exit 0";
    let output = place.run(&["--capture", "--", "sh", "-c", script]);
    assert_eq!(text(&output.stdout), "tail:mine\n\n");
    assert!(!exists(place.wait_for_pid("pid")));
}

#[test]
fn a_signal_to_us_ends_the_whole_tree() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let place = Place::new();
        let mut fixture = place.start(&["--", "python3", "-c", STUBBORN]);
        let pids = ["main", "child", "grandchild"].map(|name| place.wait_for_pid(name));
        let start = Instant::now();
        signal(pid(&fixture), name);
        assert_eq!(wait_for_end(&mut fixture).code(), Some(128 + number), "{name}");
        assert!(start.elapsed() >= Duration::from_millis(1900), "the grace period was not kept");
        assert!(pids.iter().all(|pid| !exists(*pid)), "{name}: {pids:?}");
        place.assert_no_run_folder();
    }
}

#[test]
fn a_second_signal_kills_at_once() {
    let place = Place::new();
    // Without the second signal it would end long after the guard of `wait_for_end`.
    let mut fixture = place.start(&["--grace-s=100000", "--", "python3", "-c", STUBBORN]);
    let pids = ["main", "child", "grandchild"].map(|name| place.wait_for_pid(name));
    signal(pid(&fixture), "INT");
    // Signals that come closer together are one wish, and the first may be late.
    let mut sent = 1;
    let status = common::wait_until("the fixture ends", || {
        std::thread::sleep(Duration::from_millis(300));
        let status = fixture.try_wait().unwrap();
        if status.is_none() {
            signal(pid(&fixture), "INT");
            sent += 1;
        }
        status
    });
    assert_eq!((status.code(), sent >= 2), (Some(130), true));
    assert!(pids.iter().all(|pid| !exists(*pid)));
    place.assert_no_run_folder();
}

#[test]
fn a_program_may_tidy_up_and_gets_one_signal() {
    let place = Place::new();
    let mut fixture = place.start(&["--", "python3", "-c", TIDY]);
    let main = place.wait_for_pid("main");
    let child = place.wait_for_pid("child");
    signal(pid(&fixture), "TERM");
    assert_eq!(wait_for_end(&mut fixture).code(), Some(128 + 15));
    assert_eq!(place.wait_for("signals"), "1\n");
    assert!(!exists(main) && !exists(child));
    place.assert_no_run_folder();
}

#[test]
fn what_a_program_leaves_running_is_ended() {
    let place = Place::new();
    // The shell ends; a daemon that has left its session and ignores requests stays.
    let script = r#"setsid sh -c 'trap "" TERM INT HUP; echo $$ > pid; while :; do sleep 1; done' & 
        while ! [ -s pid ]; do sleep 0.01; done; exit 5"#;
    let output = place.fixture(&["--", "sh", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert_eq!(output.unwrap().code(), Some(5));
    assert!(!exists(place.wait_for_pid("pid")));
}

#[test]
fn a_program_without_leftovers_is_not_delayed() {
    let place = Place::new();
    // A delay would be in each of them; other work on the machine hardly delays them all.
    let times = (0..50).map(|_| {
        let start = Instant::now();
        assert!(place.run(&["--", "true"]).status.success());
        start.elapsed()
    });
    let mut times = times.inspect(|time| eprintln!("{time:?}"));
    assert!(times.any(|time| time < Duration::from_millis(290)), "leftovers may take 300 ms to end");
}

#[test]
fn a_timeout_ends_the_tree() {
    // A timeout is by the clock, and on a busy machine the program may not have begun by then.
    for timeout in [1500, 10_000, 100_000] {
        let place = Place::new();
        let mut fixture = place.fixture(&[&format!("--timeout-ms={timeout}"), "--", "python3", "-c", STUBBORN]);
        let mut fixture = fixture.stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(wait_for_end(&mut fixture).code(), Some(128 + 9));
        let output = fixture.wait_with_output().unwrap();
        assert!(text(&output.stderr).contains("timed out"));
        place.assert_no_run_folder();
        let all = ["main", "child", "grandchild"];
        if all.iter().all(|name| place.path("work").join(name).exists()) {
            let pids = all.map(|name| place.wait_for_pid(name));
            assert!(pids.iter().all(|pid| !exists(*pid)), "{pids:?}");
            return;
        }
    }
    panic!("the program did not begin");
}

#[test]
fn a_server_is_ended_once_it_waits_and_a_program_that_sleeps_is_not() {
    let place = Place::new();
    let server = "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\nt = time.monotonic()\n\
                  while time.monotonic() < t + 3: pass\ns.accept()";
    let start = Instant::now();
    let output = place.run(&["--ends-servers", "--", "python3", "-c", server]);
    assert_eq!(output.status.code(), Some(128 + 15));
    assert!(text(&output.stderr).contains("waited for requests"), "{}", text(&output.stderr));
    // Three seconds of work, and then those of rest.
    assert!(start.elapsed() > Duration::from_secs(8), "{:?}", start.elapsed());
    let output = place.run(&["--ends-servers", "--", "sh", "-c", "sleep 9; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "it listens for nothing");
    assert!(!text(&output.stderr).contains("waited for requests"));
}

#[test]
fn a_signal_for_the_program_is_passed_on() {
    let place = Place::new();
    let script = r#"trap 'echo got > usr1; exit 9' USR1; echo ready > ready; while :; do sleep 0.05; done"#;
    let mut fixture = place.start(&["--", "sh", "-c", script]);
    place.wait_for("ready");
    signal(pid(&fixture), "USR1");
    assert_eq!(wait_for_end(&mut fixture).code(), Some(9));
    assert_eq!(place.wait_for("usr1"), "got\n");
}

#[test]
fn a_program_that_signals_its_own_group_is_no_interrupt() {
    let place = Place::new();
    let script = "import os, signal\nsignal.signal(15, lambda *_: None)\nos.killpg(0, 15)\nraise SystemExit(4)";
    let mut fixture = place.fixture(&["--", "python3", "-c", script]);
    std::os::unix::process::CommandExt::process_group(&mut fixture, 0);
    assert_eq!(fixture.status().unwrap().code(), Some(4));
}

#[test]
fn ignored_signals_stay_ignored() {
    let place = Place::new();
    let command = "trap '' HUP; exec \"$0\" -- sh -c 'grep SigIgn /proc/self/status'";
    let mut fixture = place.fixture(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).arg(fixture.get_program()).current_dir(place.path("work"));
    shell.envs(fixture.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    let mask = text(&output.stdout).trim_start_matches("SigIgn:").trim().to_owned();
    assert_eq!(u64::from_str_radix(&mask, 16).unwrap() & 1, 1, "{mask}");
    let _ = fixture.stdin(Stdio::null());
}

#[test]
fn a_signal_outside_of_a_run_removes_the_folder() {
    let place = Place::new();
    let mut fixture = place.fixture(&["--idle"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(fixture.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(std::path::Path::new(line.trim().strip_prefix("idle ").unwrap()).exists());
    signal(pid(&fixture), "TERM");
    assert_eq!(wait_for_end(&mut fixture).signal(), Some(15));
    place.assert_no_run_folder();
}

#[test]
fn a_killed_launchers_program_is_ended() {
    for group in [false, true] {
        let place = Place::new();
        let mut fixture = place.fixture(&["--", "python3", "-c", STUBBORN]);
        // A group of its own, so that killing the group does not kill the test.
        std::os::unix::process::CommandExt::process_group(&mut fixture, 0);
        let mut fixture = fixture.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pids = ["main", "child", "grandchild"].map(|name| place.wait_for_pid(name));
        let watchdog = watchdog_of(pid(&fixture));
        signal(if group { -pid(&fixture) } else { pid(&fixture) }, "KILL");
        assert_eq!(wait_for_end(&mut fixture).signal(), Some(9));
        common::wait_until("the program is ended and nothing is left", || {
            let left = pids.iter().chain([&watchdog]).filter(|pid| exists(**pid)).count();
            (left == 0).then_some(())
        });
        place.assert_no_run_folder();
    }
}

#[test]
fn a_run_that_ends_takes_its_watchdog_along() {
    let place = Place::new();
    let mut fixture = place.start(&["--", "sh", "-c", "echo > ready; while ! [ -e go ]; do sleep 0.01; done"]);
    place.wait_for("ready");
    let watchdog = watchdog_of(pid(&fixture));
    std::fs::write(place.path("work").join("go"), "").unwrap();
    assert!(wait_for_end(&mut fixture).success());
    assert!(!exists(watchdog));
}

#[test]
fn what_not_even_a_watchdog_removed_is_swept_later() {
    let place = Place::new();
    let mut fixture = place.start(&["--", "sleep", "600"]);
    let folder = common::wait_until("there is a folder", || {
        Some(std::fs::read_dir(place.path("run")).unwrap().next()?.unwrap().path())
    });
    let watchdog = watchdog_of(pid(&fixture));
    let program = common::wait_until("the program runs", || {
        children_of(pid(&fixture)).into_iter().find(|child| *child != watchdog)
    });
    for pid in [watchdog, pid(&fixture), program] {
        signal(pid, "KILL");
    }
    wait_for_end(&mut fixture);
    assert!(place.run(&["--", "true"]).status.success());
    assert!(folder.exists(), "a young folder is left alone");
    let old = ["-d", "2 minutes ago"];
    assert!(Command::new("touch").args(old).arg(&folder).status().unwrap().success());
    assert!(place.run(&["--", "true"]).status.success());
    assert!(!folder.exists());
}

fn watchdog_of(pid: i32) -> i32 {
    common::wait_until("there is a watchdog", || {
        children_of(pid).into_iter().find(|child| {
            let command = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            text(&command).contains("--watch-over-run")
        })
    })
}

fn children_of(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn programs_that_cannot_run_are_explained() {
    let place = Place::new();
    std::fs::write(place.path("work").join("train.py"), "").unwrap();
    std::fs::write(place.path("work").join("lost"), "#!/nowhere/python\n").unwrap();
    assert!(Command::new("chmod").arg("+x").arg(place.path("work").join("lost")).status().unwrap().success());
    for (command, expected) in [
        ("pyhton", "there is no program `pyhton` on PATH"),
        ("train.py", "write `python train.py`"),
        ("./train.py", "is not executable; to run the script write `python"),
        ("./lost", "the interpreter that its first line names is missing"),
        ("./missing", "check the path"),
    ] {
        let output = place.run(&["--", command]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected) && message.lines().count() == 1, "{message}");
    }
    let output = place.run(&["--"]);
    assert!(text(&output.stderr).contains("no program was named"));
    place.assert_no_run_folder();
}

/// The terminal's part is played by a pseudo-terminal of Python's.
const TERMINAL: &str = r#"
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
def read_until(mark):
    global seen
    while mark not in seen:
        seen += os.read(terminal, 4096)
read_until(b"tty True True True")
os.write(terminal, b"typed\n")
read_until(b"read typed")
os.write(terminal, b"\x03")
try:
    while True:
        more = os.read(terminal, 4096)
        if not more:
            break
        seen += more
except OSError:
    pass
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.write(seen.decode())
sys.exit(status)
"#;

#[test]
fn at_a_terminal_the_program_reads_it_and_gets_one_interrupt() {
    let place = Place::new();
    let program = r#"
import os, signal, sys, time
count = 0
def stop(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, stop)
print("tty", *(os.isatty(fd) for fd in (0, 1, 2)), flush=True)
print("read", input(), flush=True)
until = time.time() + 30
while not count and time.time() < until:
    time.sleep(0.01)
time.sleep(0.3)
print("interrupts", count, flush=True)
"#;
    let fixture = place.fixture(&["--", "python3", "-c", program]);
    let mut terminal = Command::new("python3");
    terminal.args(["-c", TERMINAL]).arg(fixture.get_program()).args(fixture.get_args());
    terminal.current_dir(place.path("work")).stdin(Stdio::null());
    terminal.envs(fixture.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = terminal.output().unwrap();
    let seen = text(&output.stdout);
    assert!(seen.contains("interrupts 1"), "{seen} {}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{seen}");
    place.assert_no_run_folder();
}

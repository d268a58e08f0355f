//! Finds, reaps and ends the processes below this one.
//!
//! A run's processes are found by descent. This process makes itself their *subreaper*: whatever outlives its
//! parent, be it a DataLoader worker or a daemon that forked twice, becomes our child rather than that of init, and so
//! stays below us whatever group or session it has put itself in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

use crate::own_time::OwnTime;

/// How often `/proc` is read while processes are ending.
const POLL: Duration = Duration::from_millis(5);

/// How long a killed process may take to go. One that waits for a broken disk or network does not go at all.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the processes of a run whose launcher was killed may take to end by themselves.
const MARKED_GRACE: Duration = Duration::from_secs(2);

/// Children of this process that belong to no run: installers and watchdogs.
static HELPERS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn helpers() -> MutexGuard<'static, BTreeSet<i32>> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that a run's clean-up must leave alone, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Helper(i32);

impl Drop for Helper {
    fn drop(&mut self) {
        helpers().remove(&self.0);
    }
}

/// Starts a child that belongs to no run.
pub(crate) fn spawn_helper(command: &mut Command) -> io::Result<(Child, Helper)> {
    // The list stays locked until the child is on it, so that it is never taken for a run's.
    let mut helpers = helpers();
    let child = command.spawn()?;
    let pid = raw(child.id());
    helpers.insert(pid);
    Ok((child, Helper(pid)))
}

fn raw(pid: u32) -> i32 {
    i32::try_from(pid).unwrap_or(0)
}

/// Makes this process the parent of every orphan below it, where the kernel lets it.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // Any process id turns the attribute on.
    match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        // What stands for a kernel (qemu-user) may not know the attribute; orphans are still known by the run's mark.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal to one process. One that has already ended is not an error.
pub(crate) fn send(pid: i32, signal: i32) {
    let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) else { return };
    let _ = rustix::process::kill_process(pid, signal);
}

/// Whether a process has the same process group as this one, and so gets what a terminal sends to it.
pub(crate) fn shares_our_group(pid: i32) -> bool {
    rustix::process::getpgid(Pid::from_raw(pid)).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// One line of the process table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    parent: i32,
    session: i32,
    dead: bool,
}

fn table() -> BTreeMap<i32, Entry> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = fs::read(entry.path().join("stat")) else { continue };
        if let Some(entry) = parse_stat(&stat) {
            found.insert(pid, entry);
        }
    }
    found
}

/// Reads the state and the parent from `/proc/PID/stat`. The name of the program comes before them and may hold
/// anything, parentheses and line ends included, so they are looked for behind the last parenthesis.
fn parse_stat(stat: &[u8]) -> Option<Entry> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // The process group is between them.
    let session = fields.nth(1)?.parse().ok()?;
    Some(Entry { parent, session, dead: matches!(state, "Z" | "X" | "x") })
}

/// The processes of a run: everything below this process but helpers and what is below them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Descendants {
    pub(crate) living: Vec<i32>,
    /// All that have ended and that nobody has waited for.
    dead: Vec<i32>,
    /// Ended children of this process that nobody has waited for.
    zombies: Vec<i32>,
}

fn select(table: &BTreeMap<i32, Entry>, root: i32, excluded: &BTreeSet<i32>) -> Descendants {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, entry) in table {
        children.entry(entry.parent).or_default().push(*pid);
    }
    let mut found = Descendants::default();
    let mut open = vec![root];
    // A table that is read while it changes can hold a loop; each process is visited once.
    let mut seen = BTreeSet::from([root]);
    while let Some(parent) = open.pop() {
        for pid in children.get(&parent).into_iter().flatten() {
            if excluded.contains(pid) || !seen.insert(*pid) {
                continue;
            }
            open.push(*pid);
            if !table[pid].dead {
                found.living.push(*pid);
            } else {
                found.dead.push(*pid);
                if parent == root {
                    found.zombies.push(*pid);
                }
            }
        }
    }
    found
}

/// The processes of the run, after those that have ended and are ours to wait for were waited for. `main` is
/// excepted: its exit status is read by whoever started it.
pub(crate) fn descendants(main: Option<i32>) -> Descendants {
    let excluded = helpers().clone();
    let found = select(&table(), rustix::process::getpid().as_raw_nonzero().get(), &excluded);
    for pid in found.zombies.iter().filter(|pid| Some(**pid) != main) {
        let _ = rustix::process::waitpid(Pid::from_raw(*pid), WaitOptions::NOHANG);
    }
    found
}

/// Whether a process belongs to the run of `main`, be it alive or just dead.
pub(crate) fn belongs_to(main: i32, pid: i32) -> bool {
    let found = descendants(Some(main));
    found.living.contains(&pid) || found.dead.contains(&pid)
}

/// Kills every process of the run, and repeats it until none is left: while some are killed, others fork.
pub(crate) fn kill_all(main: Option<i32>) {
    let give_up = Instant::now() + KILL_TIMEOUT;
    loop {
        let living = descendants(main).living;
        if living.is_empty() || Instant::now() >= give_up {
            return;
        }
        for pid in living {
            send(pid, Signal::KILL.as_raw());
        }
        std::thread::sleep(POLL);
    }
}

/// The living processes of a session.
pub(crate) fn session(leader: i32) -> Vec<i32> {
    let table = table();
    table.iter().filter(|(_, entry)| entry.session == leader && !entry.dead).map(|(pid, _)| *pid).collect()
}

/// Sends a signal to every process of a session.
pub(crate) fn signal_session(leader: i32, signal: Signal) {
    for pid in session(leader) {
        send(pid, signal.as_raw());
    }
}

/// Ends what is left of a session whose leader has ended, as [`wind_down`] does for a program.
pub(crate) fn wind_down_session(leader: i32) {
    for (patience, signal) in WIND_DOWN {
        let mut clock = OwnTime::start_of_a_moment();
        loop {
            let living = session(leader);
            if living.is_empty() {
                return;
            }
            if clock.until(Instant::now(), || living) >= patience {
                break;
            }
            std::thread::sleep(POLL);
        }
        signal_session(leader, signal);
    }
}

/// How long of its own time what a program left may take to end, and what it is sent then.
const WIND_DOWN: [(Duration, Signal); 2] =
    [(Duration::from_millis(300), Signal::TERM), (Duration::from_millis(700), Signal::KILL)];

/// Ends what a program left behind. Helpers of a Python program need a moment to tidy up behind their parent
/// (`multiprocessing`'s resource tracker removes shared memory then), after that they are asked, and then killed.
/// `hurry` is asked between the steps; true means to kill at once.
pub(crate) fn wind_down(main: Option<i32>, mut hurry: impl FnMut() -> bool) {
    for (patience, signal) in WIND_DOWN {
        let mut clock = OwnTime::start_of_a_moment();
        loop {
            let living = descendants(main).living;
            if living.is_empty() {
                return;
            }
            if hurry() {
                return kill_all(main);
            }
            if clock.until(Instant::now(), || living) >= patience {
                break;
            }
            std::thread::sleep(POLL);
        }
        if signal == Signal::TERM {
            for pid in descendants(main).living {
                send(pid, signal.as_raw());
            }
        }
    }
    kill_all(main);
}

/// Ends all children, helpers included, because this process is about to die of a signal.
pub(crate) fn end_everything(patience: Duration, asked_already: bool) {
    helpers().clear();
    if !asked_already {
        for pid in descendants(None).living {
            send(pid, Signal::TERM.as_raw());
        }
    }
    let until = Instant::now() + patience;
    while Instant::now() < until && !descendants(None).living.is_empty() {
        std::thread::sleep(POLL);
    }
    kill_all(None);
}

/// The processes whose environment holds this entry, and what is below them.
fn marked(entry: &[u8]) -> BTreeSet<i32> {
    let table = table();
    let living = |pid: &&i32| table.get(*pid).is_some_and(|entry| !entry.dead);
    let carries = |pid: &&i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == entry)
    };
    let mut found: BTreeSet<i32> = table.keys().filter(living).filter(carries).copied().collect();
    // Who has cleared the environment is known by the parent, as long as that lives.
    for root in found.clone() {
        found.extend(select(&table, root, &BTreeSet::new()).living);
    }
    found
}

/// Ends every process whose environment holds this entry: asks first, and kills what is left after a while.
pub(crate) fn end_marked(entry: &[u8]) {
    let until = Instant::now() + MARKED_GRACE;
    for pid in marked(entry) {
        send(pid, Signal::TERM.as_raw());
    }
    let give_up = until + KILL_TIMEOUT;
    while Instant::now() < give_up {
        let left = marked(entry);
        if left.is_empty() {
            return;
        }
        if Instant::now() >= until {
            for pid in left {
                send(pid, Signal::KILL.as_raw());
            }
        }
        std::thread::sleep(10 * POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_cannot_mislead() {
        let entry = parse_stat(b"12 (a) R 1 (b\n) S 34 12 12 0 -1").unwrap();
        assert_eq!((entry.parent, entry.session, entry.dead), (34, 12, false));
        assert!(parse_stat(b"12 (x) Z 34 12 12").unwrap().dead);
        assert!(parse_stat(b"").is_none() && parse_stat(b"12 (x)").is_none());
    }

    #[test]
    fn a_run_is_what_is_below_us_without_helpers() {
        let entry = |parent, dead| Entry { parent, session: 1, dead };
        let table = BTreeMap::from([
            (1, entry(0, false)),
            (10, entry(1, false)),
            (11, entry(10, false)),
            (12, entry(11, false)),
            (13, entry(10, true)),
            (14, entry(11, true)),
            (20, entry(10, false)),
            (21, entry(20, false)),
            (30, entry(1, false)),
        ]);
        let found = select(&table, 10, &BTreeSet::from([20]));
        assert_eq!(found, Descendants { living: vec![11, 12], dead: vec![13, 14], zombies: vec![13] });
    }

    #[test]
    fn a_table_with_a_loop_ends() {
        let entry = |parent| Entry { parent, session: 1, dead: false };
        let table = BTreeMap::from([(10, entry(11)), (11, entry(10))]);
        assert_eq!(select(&table, 10, &BTreeSet::new()).living, [11]);
    }
}

//! Measures how long a run has taken with the time left out in which other work had its processors.
//!
//! On a machine with other work a program takes longer and does nothing else. What is decided by a run's time is decided by its
//! own time, so that the answer is the same there. A program that sleeps or waits uses up its own time as it does the clock's:
//! a limit of it ends what hangs, too.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a run may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    /// By the clock, which is the user's limit.
    pub clock: Option<Duration>,
    /// Of its own time, which decides the same on a busy machine.
    pub own: Option<&'a OwnLimit>,
}

impl Limits<'_> {
    /// What the user says alone.
    pub fn of_user(clock: Option<Duration>) -> Self {
        Self { clock, own: None }
    }
}

/// How often the threads of a run are looked at, unless it is about less time. Few of those that count live for a shorter time.
const EVERY: Duration = Duration::from_millis(500);

/// A limit of a run's own time, which may be set while the run goes on.
#[derive(Debug)]
pub struct OwnLimit(AtomicU64);

impl OwnLimit {
    /// No limit as yet.
    pub fn none() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// This limit.
    pub fn of(time: Duration) -> Self {
        let limit = Self::none();
        limit.set(time);
        limit
    }

    /// Sets it. A run that has used it up already ends at the next look at it.
    pub fn set(&self, time: Duration) {
        self.0.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether a run has used it up.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "programs run on Linux only"))]
    pub(crate) fn is_used_up(&self, own: Duration) -> bool {
        own.as_millis() >= u128::from(self.0.load(Ordering::Relaxed))
    }
}

/// The clock of one run.
#[derive(Debug)]
pub(crate) struct OwnTime {
    every: Duration,
    looked: Instant,
    /// By the last look.
    own: Duration,
    /// What was said last: a clock does not go back.
    said: Duration,
    /// How much of the time since the last look was the run's own, by that look.
    share: f64,
    /// By process and thread.
    threads: HashMap<(i32, i32), Thread>,
}

/// What a thread did until now, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Thread {
    ran: u64,
    /// Ready to run, while others had the processors.
    waited: u64,
}

impl OwnTime {
    /// A clock that begins now.
    pub(crate) fn start() -> Self {
        let looked = Instant::now();
        let (own, said) = (Duration::ZERO, Duration::ZERO);
        Self { every: EVERY, looked, own, said, share: 1.0, threads: HashMap::new() }
    }

    /// The same for what takes no longer than a moment.
    pub(crate) fn start_of_a_moment() -> Self {
        Self { every: EVERY / 10, ..Self::start() }
    }

    /// The run's own time until `now`. `processes` are asked for where it is time to look at them again.
    pub(crate) fn until(&mut self, now: Instant, processes: impl FnOnce() -> Vec<i32>) -> Duration {
        let passed = now.saturating_duration_since(self.looked);
        if passed >= self.every {
            self.look(passed, &processes());
            self.looked = now;
        }
        self.said = self.said.max(self.end(now));
        self.said
    }

    /// The run's own time at its end.
    pub(crate) fn end(&self, at: Instant) -> Duration {
        self.said.max(self.own + at.saturating_duration_since(self.looked).mul_f64(self.share))
    }

    fn look(&mut self, passed: Duration, processes: &[i32]) {
        let now = threads(processes);
        let mut more = Thread::default();
        for (id, thread) in &now {
            let before = self.threads.get(id).copied().unwrap_or_default();
            more.ran = more.ran.saturating_add(thread.ran.saturating_sub(before.ran));
            more.waited = more.waited.saturating_add(thread.waited.saturating_sub(before.waited));
        }
        // A wait is counted when it is over.
        let starves = more == Thread::default() && now.keys().any(|(pid, tid)| is_ready(*pid, *tid));
        self.share = if starves { 0.0 } else { own_share(passed, more) };
        self.own += passed.mul_f64(self.share);
        self.threads = now;
    }
}

/// How much of the time that passed was a run's own, by what its threads did meanwhile: while any of them was ready to run, as
/// much as the processors that they got are of those that they could have used.
fn own_share(passed: Duration, more: Thread) -> f64 {
    let (ran, waited) = (more.ran as f64, more.waited as f64);
    let ready = ran + waited;
    if ready <= 0.0 {
        return 1.0;
    }
    let busy = (ready / (passed.as_nanos() as f64).max(1.0)).min(1.0);
    1.0 - busy * waited / ready
}

/// All threads of some processes. A kernel that does not count how long they wait gives none, and all time is a run's own.
fn threads(processes: &[i32]) -> HashMap<(i32, i32), Thread> {
    let mut found = HashMap::new();
    for pid in processes {
        for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let counted = fs::read_to_string(entry.path().join("schedstat")).ok();
            if let Some(thread) = counted.as_deref().and_then(parse) {
                found.insert((*pid, tid), thread);
            }
        }
    }
    found
}

/// Reads `/proc/PID/task/TID/schedstat`: the time that the thread ran, the time that it waited, and how often it ran.
fn parse(schedstat: &str) -> Option<Thread> {
    let mut fields = schedstat.split_ascii_whitespace().map(|field| field.parse().ok());
    Some(Thread { ran: fields.next()??, waited: fields.next()?? })
}

/// Whether a thread is ready to run.
fn is_ready(pid: i32, tid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let end = stat.iter().rposition(|byte| *byte == b')').unwrap_or(stat.len());
    stat.get(end + 2) == Some(&b'R')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn share(ran_ms: u64, waited_ms: u64) -> f64 {
        let share = own_share(SECOND, Thread { ran: ran_ms * 1_000_000, waited: waited_ms * 1_000_000 });
        (share * 1000.0).round() / 1000.0
    }

    #[test]
    fn what_others_took_is_not_the_runs_own_time() {
        assert!((share(0, 0) - 1.0).abs() < f64::EPSILON, "it slept");
        assert!((share(1000, 0) - 1.0).abs() < f64::EPSILON, "it had a processor to itself");
        assert!((share(125, 875) - 0.125).abs() < f64::EPSILON, "it had an eighth of one");
        assert!((share(250, 1750) - 0.125).abs() < f64::EPSILON, "two of its threads had an eighth of one each");
        assert!((share(10, 40) - 0.96).abs() < f64::EPSILON, "it slept most of the time");
    }

    #[test]
    fn a_clock_is_between_no_time_and_all_of_it() {
        let begun = Instant::now();
        let mut clock = OwnTime::start();
        let me = i32::try_from(std::process::id()).unwrap_or(0);
        let mut last = Duration::ZERO;
        for step in 1..40 {
            let own = clock.until(begun + step * Duration::from_millis(100), || vec![me]);
            assert!(own >= last && own <= step * Duration::from_millis(100) + EVERY, "{own:?} after {step}");
            last = own;
        }
        assert!(clock.end(begun + 5 * SECOND) >= last);
    }

    #[test]
    fn a_limit_may_come_later() {
        let limit = OwnLimit::none();
        assert!(!limit.is_used_up(Duration::from_secs(1 << 40)));
        limit.set(SECOND);
        assert!(limit.is_used_up(SECOND) && !limit.is_used_up(SECOND / 2));
        assert!(OwnLimit::of(Duration::ZERO).is_used_up(Duration::ZERO));
    }

    #[test]
    fn what_the_kernel_counts_is_read() {
        assert_eq!(parse("1061852 20170 3\n"), Some(Thread { ran: 1_061_852, waited: 20170 }));
        assert_eq!((parse(""), parse("1")), (None, None));
    }
}

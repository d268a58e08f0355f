//! Says how much a search may still try: a number of runs, so that the answer on a busy machine is the same; or until the time
//! that the user set, by the clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use oomph_launch::{Limits, OwnLimit};

/// A program whose run takes less of its own time than this is quick.
const QUICK: Duration = Duration::from_secs(8);
/// One whose run takes more than this is slow.
const SLOW: Duration = Duration::from_secs(30);

/// How many runs may be begun by each of at most [`MOST_JOBS`] jobs, of a program that is quick, of one that is slow, and of one
/// between them. Who waited for a slow one waits for some more of it: fewer say little about what would help.
const RUNS: [u32; 3] = [16, 6, 8];
/// More at a time need no more in all.
const MOST_JOBS: usize = 2;

/// How much of its own time a try may take: so much, or so many times what the unmodified program took. What then still runs is
/// taken for one that hangs.
const LONGEST_TRY: Duration = Duration::from_secs(120);
/// See [`LONGEST_TRY`].
const TRY_TIMES: u32 = 4;

/// A try that has begun may run this much longer than the time that the user set.
const OVERTIME: Duration = Duration::from_secs(60);

/// What a search may still try.
#[derive(Debug)]
pub struct Budget {
    /// Until when, where the user said so. Then nothing else counts.
    until: Option<Instant>,
    /// How many runs may still be begun.
    left: AtomicU32,
    /// How many are worth adding where there are too few answers.
    few: u32,
    longest_try: Duration,
}

impl Budget {
    /// For a program whose unmodified run took so much of its own time, where so many may run at a time; it begins now.
    pub fn new(max_time: Option<Duration>, unmodified: Duration, jobs: usize) -> Self {
        let [quick, slow, other] = RUNS;
        let each = if unmodified < QUICK {
            quick
        } else if unmodified > SLOW {
            slow
        } else {
            other
        };
        let jobs = u32::try_from(jobs.clamp(1, MOST_JOBS)).unwrap_or(1);
        Self {
            until: max_time.and_then(|time| Instant::now().checked_add(time)),
            left: AtomicU32::new(each * jobs),
            few: slow * jobs,
            longest_try: LONGEST_TRY.max(unmodified.saturating_mul(TRY_TIMES)),
        }
    }

    /// Whether another try may begin.
    pub fn has_more(&self) -> bool {
        match self.until {
            Some(until) => Instant::now() < until,
            None => self.left.load(Ordering::Relaxed) > 0,
        }
    }

    /// Takes a try off it that is about to begin.
    pub fn begin(&self) {
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(1)));
    }

    /// A few runs more where nobody set the time: one answer leaves no choice, which is worth them.
    pub fn add_a_few(&self) {
        self.left.fetch_max(self.few, Ordering::Relaxed);
    }

    /// What a try may use of its own time.
    pub fn longest_try(&self) -> OwnLimit {
        if self.until.is_some() { OwnLimit::none() } else { OwnLimit::of(self.longest_try) }
    }

    /// The limits of a try; `own` is [`Self::longest_try`].
    pub fn limits<'a>(&self, own: &'a OwnLimit) -> Limits<'a> {
        let clock = self.until.map(|until| until.saturating_duration_since(Instant::now()) + OVERTIME);
        Limits { clock, own: Some(own) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(budget: &Budget) -> u32 {
        let mut begun = 0;
        while budget.has_more() {
            budget.begin();
            begun += 1;
        }
        begun
    }

    #[test]
    fn runs_are_counted_and_not_seconds() {
        let budget = |seconds: u64, jobs: usize| Budget::new(None, Duration::from_secs(seconds), jobs);
        assert_eq!([runs(&budget(3, 2)), runs(&budget(3, 1)), runs(&budget(3, 16))], [32, 16, 32]);
        assert_eq!([runs(&budget(10, 2)), runs(&budget(100, 2)), runs(&budget(100, 1))], [16, 12, 6]);
        let spent = budget(3, 2);
        runs(&spent);
        spent.add_a_few();
        assert_eq!(runs(&spent), 12);
    }

    #[test]
    fn the_users_time_counts_alone() {
        let budget = Budget::new(Some(Duration::from_secs(3600)), Duration::ZERO, 1);
        (0..1000).for_each(|_| budget.begin());
        assert!(budget.has_more());
        assert!(budget.limits(&budget.longest_try()).clock.is_some_and(|clock| clock > Duration::from_secs(3600)));
        assert!(!Budget::new(Some(Duration::ZERO), Duration::ZERO, 1).has_more());
    }
}

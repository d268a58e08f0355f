//! Continues a script as if a loop of the program had made more iterations than were recorded.

use std::ops::Range;

use crate::script::{Kind, Script, Step};

/// A script in which an iteration was made again and again.
#[derive(Clone, Debug)]
pub struct Repeated {
    /// The script. The requests of repetition n, from 1, have the event [`Repeated::first_event`] + n - 1.
    pub script: Script,
    /// The first event that no recorded request has.
    pub first_event: usize,
    /// How many iterations that allocate as much follow the repetitions: they were recorded.
    pub followed_by: usize,
    /// What one repetition leaves allocated, in bytes as they were requested.
    pub stays: u64,
}

/// Whose block a request of the repeated iteration is about.
#[derive(Clone, Copy)]
enum Whose {
    /// That of this allocation of the same iteration.
    Own(u32),
    /// That of this allocation of the iteration before.
    Before(u32),
    /// An older one, which is given back once.
    Older,
}

impl Script {
    /// Makes the second of two iterations in a row so many more times, right after it was made. `ends` are the events with
    /// which the iteration before the first of them, the first and the second ended.
    ///
    /// What a repetition gives back of the iteration before is that of the repetition before it. `None` where the two iterations
    /// did not allocate alike, or where memory ran out in them.
    pub fn repeated(&self, ends: [usize; 3], times: u32) -> Option<Repeated> {
        let first_event = self.events.iter().max().map_or(0, |&last| last as usize + 1);
        let step_at = |end: usize| self.events.partition_point(|&event| event as usize <= end);
        let [begin, middle, end] = ends.map(step_at);
        let is_plain = |step: &Step| !matches!(step.kind, Kind::Attempt | Kind::ReleasePool);
        if begin >= middle || middle >= end || self.fatal.is_some() || !self.steps[begin..end].iter().all(is_plain) {
            return None;
        }
        let sizes = |steps: &[Step]| steps.iter().filter(|step| step.takes()).map(|step| step.size).collect::<Vec<_>>();
        let made = sizes(&self.steps[middle..end]);
        if made.is_empty() || sizes(&self.steps[begin..middle]) != made {
            return None;
        }

        let rest = sizes(&self.steps[end..]);
        let followed_by = rest.chunks(made.len()).take_while(|iteration| **iteration == made).count();

        let mut renamed = Renamed::new(self);
        renamed.all(self, 0..begin);
        let before = renamed.next;
        renamed.all(self, begin..middle);
        let own = renamed.next;
        let whose: Vec<Whose> = (middle..end)
            .map(|index| {
                let slot = renamed.add(&self.steps[index], self.events[index]);
                match slot {
                    slot if slot >= own => Whose::Own(slot - own),
                    slot if slot >= before => Whose::Before(slot - before),
                    _ => Whose::Older,
                }
            })
            .collect();
        let count = u32::try_from(made.len()).ok()?;
        let mut stays = made.iter().sum::<u64>();
        for (step, whose) in self.steps[middle..end].iter().zip(&whose) {
            if let (Kind::Free | Kind::Complete, Whose::Own(place) | Whose::Before(place)) = (step.kind, whose) {
                stays = stays.saturating_sub(made[*place as usize]);
            }
        }
        for time in 0..times {
            let (last, this) = (own + time * count, own.checked_add((time + 1).checked_mul(count)?)?);
            let event = u32::try_from(first_event).ok()?.checked_add(time)?;
            for (step, whose) in self.steps[middle..end].iter().zip(&whose) {
                let slot = match whose {
                    Whose::Own(place) => this + place,
                    Whose::Before(place) => last + place,
                    Whose::Older if step.gives_back() => continue,
                    Whose::Older => step.slot,
                };
                renamed.push(Step { slot, ..*step }, event);
            }
            renamed.next = this.checked_add(count)?;
        }
        // What is given back afterwards of the two iterations is that of the last two.
        let moved = times * count;
        for slot in &mut renamed.now {
            if *slot >= before && *slot < own + count {
                *slot += moved;
            }
        }
        renamed.all(self, end..self.steps.len());
        Some(Repeated { script: renamed.script(self), first_event, followed_by, stays })
    }
}

/// A script whose every block has a slot of its own, so that no later block takes the place of one that is still there.
struct Renamed {
    steps: Vec<Step>,
    events: Vec<u32>,
    /// The new slot of the block in each slot.
    now: Vec<u32>,
    next: u32,
}

impl Renamed {
    fn new(script: &Script) -> Self {
        Self { steps: Vec::new(), events: Vec::new(), now: (0..script.slots).collect(), next: script.slots }
    }

    fn all(&mut self, script: &Script, steps: Range<usize>) {
        for index in steps {
            self.add(&script.steps[index], script.events[index]);
        }
    }

    /// Adds a request of the script; gives the new slot of its block.
    fn add(&mut self, step: &Step, event: u32) -> u32 {
        let slot = match self.now.get_mut(step.slot as usize) {
            Some(slot) if step.takes() => {
                *slot = self.next;
                self.next += 1;
                *slot
            }
            Some(slot) => *slot,
            None => step.slot,
        };
        self.push(Step { slot, ..*step }, event);
        slot
    }

    fn push(&mut self, step: Step, event: u32) {
        self.steps.push(step);
        self.events.push(event);
    }

    fn script(self, of: &Script) -> Script {
        Script { steps: self.steps, events: self.events, slots: self.next, ..of.clone() }
    }
}

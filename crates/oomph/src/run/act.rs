//! `--act`: a remedy is looked for at the first sign of a death, while the program still runs. Only when there is one is the
//! program asked to save a checkpoint and to end.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oomph_launch::{HookProgress, RunFolder};

use super::remedy::{self, Configuration};
use super::{Decision, Guarded};
use crate::fix;
use crate::output;
use crate::stage::Ending;

/// Between two looks at what the hook has noticed.
const LOOK: Duration = Duration::from_secs(1);

/// What a search beside a running program came to.
#[derive(Default)]
pub struct Found {
    /// The fixes, the best first.
    pub fixes: Vec<Configuration>,
    /// How long it took.
    pub seconds: f64,
}

impl Guarded<'_> {
    /// Waits for a sign, looks for a fix, and asks the program to leave for it. Where the program dies meanwhile, the search
    /// goes on, and what it finds is used for the next start.
    pub(super) fn act_on_signs(
        &self,
        configuration: &Configuration,
        folder: &RunFolder,
        ending: &Ending,
        found: &Mutex<Found>,
    ) {
        let steps = loop {
            if ending.has_ended.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(LOOK);
            let reports = folder.reports().reports;
            let progress = || reports.iter().filter_map(|hook| hook.progress.as_ref());
            if progress().any(|progress| !progress.signs.is_empty()) {
                let counted = reports.iter().map(|hook| hook.optimizer_steps).max().unwrap_or(0);
                break progress().filter_map(|one: &HookProgress| one.step).max().unwrap_or(counted);
            }
        };
        let mut spare = Vec::new();
        let (decision, seconds) = remedy::timed(|| {
            // What is free now is less than what the program has when it starts again.
            let cards = fix::limited(&self.stage.program.cards, None, self.margin.as_deref())
                .map_err(crate::trial::Stop::Failed)?;
            self.decide(configuration, steps, &cards, 0, &ending.needs_nothing, &mut spare)
        });
        let next = match decision {
            Ok(Decision::Again(next)) => next,
            Ok(Decision::End(_)) if ending.has_ended.load(Ordering::Relaxed) => return,
            Ok(Decision::End(reason)) => return output::say(&format!("oomph: it goes on as it is: {reason}")),
            Err(_) => return,
        };
        let titles = next.titles.join(" + ");
        spare.insert(0, next);
        *found.lock().unwrap_or_else(PoisonError::into_inner) = Found { fixes: spare, seconds };
        if ending.has_ended.load(Ordering::Relaxed) {
            return;
        }
        output::say(&format!(
            "oomph: this makes it fit: {titles}; it starts again with that after its next checkpoint"
        ));
        if let Err(error) = folder.ask_to_leave() {
            output::say(&format!("oomph: warning: the program cannot be asked to save: {error}"));
        }
    }
}

//! Keeps the history of each process on a card.

use std::collections::BTreeMap;

use oomph_report::{Moment, WatchReport};

use super::forecast::{Sample, Series};

/// In its first steps an optimizer makes its state, and libraries take their workspaces.
const WARM_UP: u64 = 2;

/// The processes by card and id.
#[derive(Debug, Default)]
pub struct Courses {
    known: BTreeMap<(String, u32), Series>,
}

impl Courses {
    /// Adds a look, and writes into it where each process is heading.
    pub fn add(&mut self, report: &mut WatchReport) {
        let mut seen = Vec::new();
        let time = report.time;
        for card in &mut report.cards {
            let name = format!("{}/{}", card.rehearsal.unwrap_or(0), card.uuid.as_deref().unwrap_or_default());
            let name = format!("{name}/{}/{:?}", card.index, card.mig);
            for process in &mut card.processes {
                let Some(framework) = &mut process.framework else { continue };
                let key = (name.clone(), process.pid);
                let series = self.known.entry(key.clone()).or_default();
                if framework.moment == Moment::StepEnd && framework.process_steps > WARM_UP {
                    series.add(Sample {
                        seconds: time - framework.age_seconds,
                        step: framework.step,
                        allocated: framework.allocated_bytes,
                        peak: framework.allocated_peak_bytes,
                        reserved: framework.reserved_bytes,
                        fragments: framework.fragments_bytes.unwrap_or(0),
                        room: framework.room_bytes,
                    });
                }
                framework.outlook = Some(series.outlook());
                seen.push(key);
            }
        }
        // A process that has ended may have its number taken by another.
        self.known.retain(|key, _| seen.contains(key));
    }
}

//! Describes the unmodified program: what its runs have shown, what it needs, and who owns its memory.

use oomph_explain::snapshot::{At, OwnerRow};
use oomph_launch::{HookOom, HookProgram};
use oomph_report::DryRunReport;

use super::bench::peak;
use super::{phases, situation};
use crate::assemble::{assemble, assemble_with};
use crate::cards::Card;
use crate::evidence::Evidence;
use crate::observation::Observation;
use crate::trial::Stop;
use crate::{needs, pool, whose};

/// A program that does not fit, before anything is changed.
pub struct Unmodified<'s> {
    /// The run on the cards, on which it died.
    pub first: &'s Observation,
    /// The run on cards without a limit.
    pub probe: &'s Observation,
    /// What that run has shown.
    pub needed: DryRunReport,
    /// The search for the smallest card that holds it.
    search: needs::Search<'s>,
    /// What that search has found.
    searched: needs::Searched,
    /// The owners at the peak without a limit, where that run says what the program needs.
    owners_of_probe: Option<Vec<OwnerRow>>,
}

impl<'s> Unmodified<'s> {
    /// The program of which `first` is the run on the cards and `search` knows the run on `unlimited`, the same cards
    /// without a limit.
    ///
    /// # Errors
    /// When a run cannot be set up, or a signal ends one.
    pub fn of(first: &'s Observation, search: needs::Search<'s>, unlimited: &[Card]) -> Result<Self, Stop> {
        let probe = search.unlimited;
        let needed = assemble(unlimited, probe, None);
        let device = needed.devices.get(fullest(&needed)).filter(|_| !probe.takes_a_share());
        let owners_of_probe = device.and_then(|device| whose::owners_at(device, probe, At::InUse));
        let owners_of_probe = owners_of_probe.map(|whose| whose.owners);
        // The search for fixes starts from the run without a limit; what the program needs to the last byte is asked for
        // after it.
        let searched = if owners_of_probe.is_some() { needs::Searched::default() } else { search.run()? };
        Ok(Self { first, probe, needed, search, searched, owners_of_probe })
    }

    /// Finds what it needs to the last byte, where that was put off.
    ///
    /// # Errors
    /// When a run cannot be set up, or a signal ends one.
    pub fn find_need(&mut self) -> Result<(), Stop> {
        if self.is_seen_whole() {
            self.searched = self.search.run()?;
        }
        Ok(())
    }

    /// Whether the run without a limit shows what the program needs, and whose memory that is.
    pub fn is_seen_whole(&self) -> bool {
        self.owners_of_probe.is_some()
    }

    /// The answer of a dry run on the cards, with what is known of the need.
    pub fn report(&self) -> DryRunReport {
        let (found, died_with) = (self.searched.found.as_ref(), self.searched.died_with.as_slice());
        let evidence = Evidence { probe: Some(self.probe), found, died_with, ..Evidence::default() };
        assemble_with(self.search.cards, self.first, &evidence)
    }

    /// The card that is filled most.
    pub fn fullest(&self) -> usize {
        fullest(&self.needed)
    }

    /// Whether the fullest card, of `capacity` bytes, has enough for what its framework's pool may not take of it. `report` is
    /// [`Self::report`].
    pub fn pool_is_small(&self, report: &DryRunReport, capacity: u64) -> bool {
        let fullest = self.fullest();
        let allocated = self.needed.devices.get(fullest).and_then(|device| device.peak.allocated_bytes);
        let device = report.devices.get(fullest).zip(allocated);
        device.is_some_and(|(device, allocated)| pool::holds_with_a_larger_share(device, allocated, capacity))
    }

    /// The owners of that card's memory. `report` is [`Self::report`].
    pub fn owners(&self, report: &DryRunReport) -> Vec<OwnerRow> {
        // A run that was cut short left no recording: then the owners are those of the death, and the peak is what was
        // there with what was asked for.
        let of_death = || Some(whose::owners(report.devices.get(self.fullest())?, self.first)?.owners);
        self.owners_of_probe.clone().or_else(of_death).unwrap_or_default()
    }

    /// What the fullest card has to hold, in bytes; `card` is that card, and `report` is [`Self::report`].
    pub fn peak_bytes(&self, report: &DryRunReport, card: &Card) -> u64 {
        let needs = report.devices.iter().filter_map(|device| device.need()).map(|need| need.process_bytes).max();
        needs.unwrap_or_else(|| if self.probe.takes_a_share() { self.at_death(card) } else { peak(&self.needed) })
    }

    /// What the hook says of the program: the run without a limit has seen all of it. What the program was holding on to is
    /// seen where it died; a run that came to its end has let go of it.
    pub fn program(&self) -> HookProgram {
        let program = phases::with_growth(self.described(), &self.first.hooks);
        phases::with_growth(program, &self.probe.hooks)
    }

    fn described(&self) -> HookProgram {
        let (dying, whole) = (situation::described(&self.first.hooks), situation::described(&self.probe.hooks));
        if whole == HookProgram::default() {
            return dying;
        }
        let mut kept = dying.kept;
        let is_known = |one: &oomph_launch::HookKept| {
            kept.iter().any(|known| (&known.file, &known.name) == (&one.file, &one.name))
        };
        let also: Vec<_> = whole.kept.into_iter().filter(|one| !is_known(one)).collect();
        kept.extend(also);
        HookProgram { kept, ..whole }
    }

    /// The error that the program died of.
    pub fn error(&self) -> Option<&'s HookOom> {
        let all = || self.first.hooks.reports.iter().filter_map(|hook| hook.oom.as_ref());
        // A program that caught its error is to be made to fit as it is written.
        all().find(|oom| oom.fatal).or_else(|| all().next())
    }

    /// What the program would have held at least, had the card not refused it: the card and what was requested, in bytes.
    pub fn at_death(&self, card: &Card) -> u64 {
        card.gpu.capacity_bytes.saturating_add(self.error().map_or(0, |oom| oom.requested_bytes))
    }
}

/// The card that is filled most.
pub fn fullest(report: &DryRunReport) -> usize {
    let most = report.devices.iter().enumerate().max_by_key(|(_, device)| device.peak.process_bytes);
    most.map_or(0, |(index, _)| index)
}

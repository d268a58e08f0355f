//! Combines remedies, each with an amount.

use std::fmt;

use crate::remedy::{Divided, Remedy, Sameness, TimeClass};
use crate::situation::Settings;

/// A remedy, with its amount where it has one.
#[derive(Clone, Copy)]
pub struct Dose<'a> {
    /// The remedy.
    pub remedy: &'a Remedy,
    /// One of the amounts of its knob.
    pub amount: Option<u32>,
}

impl PartialEq for Dose<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Dose<'_> {}

impl fmt::Debug for Dose<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

impl<'a> Dose<'a> {
    /// A remedy without an amount.
    pub fn of(remedy: &'a Remedy) -> Self {
        Self { remedy, amount: None }
    }

    fn key(&self) -> (&str, Option<u32>) {
        (&self.remedy.id, self.amount)
    }

    /// The option that the hook is given for the amount: its name and its value. `None` where the remedy has none, or
    /// where the setting that it divides is not known.
    pub fn option(&self, settings: &Settings) -> Option<(&'a str, u64)> {
        let knob = self.remedy.knob.as_ref()?;
        let amount = u64::from(self.amount?.max(1));
        let value = match knob.of {
            None => amount,
            Some(Divided::SequenceLength) => settings.sequence_length?.div_ceil(amount),
        };
        Some((&knob.option, value))
    }

    /// The remedy's id, with the amount where there is one: `micro-batch/4`.
    pub fn name(&self) -> String {
        match self.amount {
            Some(amount) => format!("{}/{amount}", self.remedy.id),
            None => self.remedy.id.clone(),
        }
    }
}

/// Remedies that are applied together, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix<'a> {
    /// At most one dose of each remedy.
    pub doses: Vec<Dose<'a>>,
}

impl<'a> Mix<'a> {
    /// One remedy alone.
    pub fn single(dose: Dose<'a>) -> Self {
        Self { doses: vec![dose] }
    }

    /// The same mix with one dose more; another dose of the same remedy is replaced.
    #[must_use]
    pub fn with(&self, dose: Dose<'a>) -> Self {
        let mut mix = self.without(&dose.remedy.id);
        mix.doses.push(dose);
        mix
    }

    /// The same mix with the doses of another one whose remedies it does not have.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let more = other.doses.iter().filter(|dose| !self.holds(&dose.remedy.id));
        Self { doses: self.doses.iter().chain(more).copied().collect() }
    }

    /// The same mix without one remedy.
    #[must_use]
    pub fn without(&self, id: &str) -> Self {
        Self { doses: self.doses.iter().filter(|dose| dose.remedy.id != id).copied().collect() }
    }

    /// Whether a remedy is in it.
    pub fn holds(&self, id: &str) -> bool {
        self.doses.iter().any(|dose| dose.remedy.id == id)
    }

    /// Whether both are made of the same remedies, in whatever amounts.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.doses.len() == other.doses.len() && self.doses.iter().all(|dose| other.holds(&dose.remedy.id))
    }

    /// What stays the same with all of them applied: the least of what each keeps.
    pub fn sameness(&self) -> Sameness {
        self.doses.iter().map(|dose| dose.remedy.sameness).max().unwrap_or(Sameness::Exact)
    }

    /// The longest time that one of them costs.
    pub fn time(&self) -> TimeClass {
        self.doses.iter().map(|dose| dose.remedy.time.class).max().unwrap_or(TimeClass::None)
    }

    /// The names of its doses, sorted, so that two mixes of the same doses have the same key.
    pub fn key(&self) -> Vec<String> {
        let mut names: Vec<String> = self.doses.iter().map(Dose::name).collect();
        names.sort();
        names
    }
}

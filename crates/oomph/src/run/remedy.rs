//! Chooses the next start's remedies: the cheapest fix that a dry run has shown to fit the card's free memory.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use oomph_gpu::size;
use oomph_remedy::search::{Prefer, Wishes};
use oomph_remedy::{Catalogue, Sameness};
use oomph_report::{FixVerdict, ResultChange};

use crate::cards::Card;
use crate::changes::Changes;
use crate::fix::{self, Answer, Wanted};
use crate::run_context::RunContext;
use crate::trial::Stop;

/// How many fixes a search looks for: the first may turn out too tight on the real card.
const FIXES: usize = 2;

/// Where the dry run fits and the real run died, at least this part of the peak has to go: one in so many.
const LEAST_SAVING: u64 = 20;

/// A configuration of the program.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// What is different from the program as it was typed.
    pub changes: Changes,
    /// The remedies' ids, with their amounts.
    pub remedies: Vec<String>,
    /// A few words for each.
    pub titles: Vec<String>,
    /// The peak of its dry run, in bytes; `None` where there was none.
    pub peak_bytes: Option<u64>,
}

impl Configuration {
    /// The program as it was typed.
    pub fn unchanged(context: &RunContext) -> Self {
        Self {
            changes: Changes::none(&context.program.command),
            remedies: Vec::new(),
            titles: Vec::new(),
            peak_bytes: None,
        }
    }
}

/// What may be used.
pub struct Rules {
    /// Remedies that may change the result.
    pub allow: BTreeSet<String>,
    /// Remedies that may not be used.
    pub forbid: BTreeSet<String>,
    /// How long a search may take, where that was said.
    pub max_time: Option<Duration>,
    /// The ids of the only remedies that may be used, where they were found before.
    pub only: Option<BTreeSet<String>>,
}

/// The ids of remedies that are printed with their amounts.
pub fn ids(remedies: &[String]) -> BTreeSet<String> {
    remedies.iter().filter_map(|name| name.split('/').next()).map(str::to_owned).collect()
}

/// What a search came to.
pub enum Next {
    /// The program fits, as its dry run says.
    Fits {
        /// Its peak, in bytes.
        peak_bytes: Option<u64>,
    },
    /// These fit, the best first.
    Fixes(Vec<Configuration>),
    /// Nothing does, and why.
    Nothing(String),
}

/// Searches for what fits the cards.
///
/// # Errors
/// When a dry run cannot be set up, or a signal ends the search.
pub fn search(context: &RunContext, cards: &[Card], rules: &Rules, tell: &(dyn Fn(&str) + Sync)) -> Result<Next, Stop> {
    let catalogue = Catalogue::builtin();
    let changing = catalogue.remedies().iter().filter(|remedy| remedy.sameness > Sameness::Equivalent);
    let changing = changing.map(|remedy| remedy.id.clone()).filter(|id| !rules.allow.contains(id));
    let is_other = |id: &&String| rules.only.as_ref().is_some_and(|only| !only.contains(*id));
    let others = catalogue.remedies().iter().map(|remedy| &remedy.id).filter(is_other).cloned();
    let wanted = Wanted {
        cards: cards.to_vec(),
        wishes: Wishes {
            prefer: Prefer::Quality,
            allow: BTreeSet::new(),
            forbid: changing.chain(rules.forbid.iter().cloned()).chain(others).collect(),
        },
        fixes: FIXES,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        max_time: rules.max_time,
        accept_recovered: false,
        compares: true,
        options: Vec::new(),
    };
    let answer = fix::find(context, &wanted, tell)?;
    if let Some(signal) = answer.stopped {
        return Err(Stop::Interrupted(signal));
    }
    Ok(match answer.report.verdict {
        FixVerdict::FitsAlready => Next::Fits { peak_bytes: answer.report.baseline.peak_bytes },
        FixVerdict::Failed => Next::Nothing("the dry run of the program failed for a reason other than memory".into()),
        FixVerdict::NothingFits if answer.report.out_of_time => {
            Next::Nothing("the search ended before it found a remedy (--max-time sets its time)".into())
        }
        FixVerdict::NothingFits => Next::Nothing(nothing(&answer, cards, rules)),
        FixVerdict::Fixed => match usable(answer, rules) {
            fixes if fixes.is_empty() => Next::Nothing(
                "what fits would change the result or shrink the effective batch; --allow micro-batch permits that"
                    .into(),
            ),
            fixes => Next::Fixes(fixes),
        },
    })
}

fn nothing(answer: &Answer, cards: &[Card], rules: &Rules) -> String {
    let limit = cards.iter().filter_map(Card::capacity_bytes).min().map_or("the card".to_owned(), size::format);
    let hint = if rules.allow.is_empty() { "; --allow permits remedies that change the result" } else { "" };
    match answer.report.floor.as_ref().and_then(|floor| floor.peak_bytes) {
        Some(least) => format!("with every permitted remedy it needs {}, of {limit}{hint}", size::format(least)),
        None => format!("no permitted remedy makes it fit {limit}{hint}"),
    }
}

/// The fixes that keep the effective batch, or whose smaller one was permitted.
fn usable(answer: Answer, rules: &Rules) -> Vec<Configuration> {
    let permitted = |remedies: &[String]| {
        let id = |name: &String| name.split('/').next().is_some_and(|id| rules.allow.contains(id));
        remedies.iter().any(id)
    };
    let rows = answer.report.fixes.into_iter().zip(answer.changes);
    let usable = rows.filter(|(row, applied)| {
        if applied.virtual_only {
            return false;
        }
        let keeps = !matches!(row.result, ResultChange::Approximate | ResultChange::Changed);
        (keeps && !applied.shrinks_batch) || permitted(&row.remedies)
    });
    let configuration = |(row, applied): (oomph_report::FixRow, fix::Applied)| Configuration {
        changes: applied.changes,
        remedies: row.remedies,
        titles: row.titles,
        peak_bytes: Some(row.peak_bytes),
    };
    usable.map(configuration).collect()
}

/// The cards for the next search where the real run died though the dry run said that it fits: what it then needs has to
/// be less than the dry run's peak by what was refused, or by one part in [`LEAST_SAVING`].
pub fn below(cards: &[Card], peak_bytes: u64, requested_bytes: u64) -> Vec<Card> {
    let limit = peak_bytes.saturating_sub(requested_bytes.max(peak_bytes / LEAST_SAVING));
    let lower = |card: &Card| card.with_capacity(card.capacity_bytes().map_or(limit, |own| own.min(limit)));
    cards.iter().map(lower).collect()
}

/// A search that counts its time.
pub fn timed<T>(search: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let found = search();
    (found, start.elapsed().as_secs_f64())
}

//! Finds what a program needs: the smallest card that holds it.
//!
//! On a card without a limit the cache is never given back and cuDNN takes larger workspaces, so its peak there is not
//! what it needs. Replays of what it requested there foretell the smallest capacity, and runs on cards of about that size
//! confirm and correct it.

mod bracket;
mod foretell;

use std::time::{Duration, Instant};

use oomph_allocator::Spread;
use oomph_launch::Output;
use oomph_report::{DryRunReport, Verdict};

use crate::assemble::{Evidence, Observation, assemble, assemble_with};
use crate::cards::Card;
use crate::followed;
use crate::fork_runner::ForkRunner;
use crate::pool;
use crate::run_context::{Ended, RunContext, RunRequest};
use crate::trial::{Changes, Runner, Stop};

use bracket::{Bracket, Closeness, GRANULE};
pub use foretell::Foretold;
use foretell::{foretold, recorded, spreads};

/// The most runs of a search.
const MOST_RUNS: u32 = 8;
/// Nothing new is begun after this long, or after so many times as long as the program ran on a card without a limit.
const LONGEST: Duration = Duration::from_secs(60);
/// See [`LONGEST`].
const TIMES: u32 = 4;

/// How long a program may take on cards without a limit, where a leak goes on forever: this long, or so many times as
/// long as its first run.
const LONGEST_PROBE: Duration = Duration::from_secs(150);

/// The answer of a dry run with what the program needs: `report` is the answer of its first run without it.
///
/// # Errors
/// When a run cannot be set up, or a signal ends one.
pub fn answer(
    context: &RunContext,
    first: &Observation,
    report: &DryRunReport,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<DryRunReport, Stop> {
    let program = &context.program;
    let cards = &program.cards;
    let limited = cards.iter().any(|card| !card.unbounded);
    let died = matches!(report.verdict, Verdict::Oom | Verdict::Recovered);
    let forecast = report.oom_device().is_some_and(|(_, oom)| oom.forecast);
    let changes = Changes::none(&program.command);
    let runner = ForkRunner::new(context, None);
    let search = |unlimited: &Observation, died: bool| {
        let timeout = program.timeout;
        Search { runner: &runner, changes: &changes, cards, unlimited, died, timeout, hurry: false, tell }.run()
    };
    match (limited, report.verdict) {
        // Memory that grows beyond the card was not run into: the need is known from the growth.
        (true, Verdict::Oom) if forecast => return Ok(report.clone()),
        (true, Verdict::Oom | Verdict::Recovered) => {}
        (true, Verdict::Fits) => {
            let requests = recorded(first, cards.len());
            // What the allocator can take where all else takes as much as it may.
            let available = |card: usize| {
                let peak = report.devices.get(card)?.peak;
                let other = peak.high_bytes.saturating_sub(peak.reserved_bytes?);
                Some(cards[card].capacity_bytes()?.saturating_sub(other))
            };
            let (foretold, spreads) = (foretold(&requests), spreads(first, &requests, available));
            let evidence = Evidence { foretold: &foretold, spreads: &spreads, ..Evidence::default() };
            return Ok(assemble_with(cards, first, &evidence));
        }
        (false, Verdict::Fits) if first.is_done() => {
            runner.prepare(cards);
            let found = search(first, false)?;
            return Ok(assemble_with(cards, first, &Evidence { found: found.as_ref(), ..Evidence::default() }));
        }
        _ => return Ok(report.clone()),
    }
    tell("it does not fit; running it on cards without a limit, to see all that it requests");
    let unlimited: Vec<Card> = cards.iter().map(Card::without_limit).collect();
    let time_limit = LONGEST_PROBE.max(first.elapsed.saturating_mul(TIMES));
    let ended = runner.perform(&RunRequest {
        changes: &changes,
        cards: &unlimited,
        output: Output::Capture,
        timeout: Some(program.timeout.map_or(time_limit, |timeout| timeout.min(time_limit))),
        history: true,
        keep: None,
        give_up: None,
        writes: false,
    });
    let probe = match ended.map_err(Stop::Failed)? {
        Ended::Observed(probe) => probe,
        Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
    };
    let found = search(&probe, died)?;
    let foretold = if found.is_none() { foretold(&recorded(&probe, cards.len())) } else { Vec::new() };
    let evidence = Evidence { probe: Some(&probe), found: found.as_ref(), foretold: &foretold, ..Evidence::default() };
    Ok(assemble_with(cards, first, &evidence))
}

/// The smallest card that holds a program, from runs.
#[derive(Debug)]
pub struct Found {
    /// The run on the smallest capacity that held it.
    pub run: Observation,
    /// What each card had there, in bytes.
    pub cards: Vec<Card>,
    /// The part of it, in bytes, that each card needs of that.
    pub capacities: Vec<u64>,
    /// What each card had, in bytes, where it was seen to die just below.
    pub fails: Option<Vec<u64>>,
    /// How many runs it took.
    pub runs: u32,
    /// The capacities of the fullest card that it was run on, in bytes, and whether they held it.
    pub tried: Vec<(u64, bool)>,
    /// How far each card's reserved bytes may come out otherwise on a real one.
    pub spreads: Vec<Option<Spread>>,
}

/// A search.
pub struct Search<'a> {
    /// Where the program runs.
    pub runner: &'a dyn Runner,
    /// What is different from the program as it was typed.
    pub changes: &'a Changes,
    /// The cards that it is to run on; their capacities do not matter.
    pub cards: &'a [Card],
    /// The run on cards without a limit, which came to its end.
    pub unlimited: &'a Observation,
    /// Whether it died on `cards`.
    pub died: bool,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// Whether the search is only the beginning of another one, so that a slow program is given less time.
    pub hurry: bool,
    /// Receives what is tried.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

impl Search<'_> {
    /// Searches; `None` where the program is not one whose need is found so, because several processes share a card.
    /// Then its peak is all that is known.
    ///
    /// A program may adapt to the card: XLA recomputes what a smaller one cannot hold, and a pool takes a share of it.
    /// Its peak without a limit says little then, and only the cards that it was run on count.
    ///
    /// # Errors
    /// When a run cannot be set up, or a signal ends one.
    pub fn run(&self) -> Result<Option<Found>, Stop> {
        let report = assemble(&self.unlimited_cards(), self.unlimited, None);
        let used: Vec<usize> =
            (0..self.cards.len()).filter(|&card| foretell::users(self.unlimited, card) > 0).collect();
        let adapts = report.devices.iter().any(|device| device.pool.is_some());
        // vLLM takes all of a card that it may, so that its run without a limit says nothing of where to begin.
        let fills = report.frameworks.contains_key("vllm");
        let shared = used.iter().any(|&card| foretell::users(self.unlimited, card) > 1);
        // What was left out of loops that grow is not in any run.
        let grows = report.devices.iter().any(|device| followed::left_out_bytes(device, &report.loops) > 0);
        let whole = report.verdict == Verdict::Fits && self.unlimited.is_done() && !grows;
        if used.is_empty() || fills || shared || !whole {
            return Ok(None);
        }
        let start = Instant::now();
        // What adapts runs once for each capacity, and takes the time of as many trials.
        let hurry = self.hurry && adapts;
        let time_limit = if hurry { LONGEST } else { LONGEST.max(self.unlimited.elapsed.saturating_mul(TIMES)) };
        let peaks: Vec<u64> = report
            .devices
            .iter()
            .zip(self.unlimited_cards())
            .enumerate()
            .map(|(index, (device, card))| pool::smallest_for(device, card.description(index).capacity_bytes))
            .collect();
        let outside =
            |card: usize| peaks[card].saturating_sub(report.devices[card].peak.reserved_bytes.unwrap_or(peaks[card]));
        let requests = recorded(self.unlimited, self.cards.len());
        let replayed = foretold(&requests);
        let least: Vec<u64> = (0..peaks.len())
            .map(|card| replayed[card].map_or(peaks[card], |found| found.least.saturating_add(outside(card))))
            .map(|bytes| bytes.next_multiple_of(GRANULE))
            .collect();
        // One figure for all cards: that of the fullest, and the others in proportion to what is foretold for them.
        let fullest = used.iter().copied().max_by_key(|&card| least[card]).unwrap_or(0);
        let died = self.died.then(|| self.cards[fullest].capacity_bytes()).flatten();
        let dies = died.filter(|&bytes| self.cards.len() == 1 && (adapts || bytes < peaks[fullest])).unwrap_or(0);
        let closeness = if adapts { Closeness::Adapting } else { Closeness::Exact };
        let mut bracket = Bracket::new(dies, least[fullest], peaks[fullest], closeness);
        let scaled = |bytes: u64, card: usize| {
            let share = u128::from(bytes) * u128::from(least[card]) / u128::from(least[fullest].max(1));
            // Of a card that is not used, a context is all that is taken.
            u64::try_from(share).unwrap_or(u64::MAX).next_multiple_of(GRANULE).max(1 << 30)
        };
        let capacities = |bytes: u64| -> Vec<u64> {
            (0..self.cards.len()).map(|card| if card == fullest { bytes } else { scaled(bytes, card) }).collect()
        };
        let mut best: Option<(Observation, Vec<Card>, Vec<u64>)> = None;
        let (mut runs, mut is_over) = (0, false);
        let mut tried = Vec::new();
        while runs < MOST_RUNS && !is_over {
            let left = time_limit.saturating_sub(start.elapsed());
            let chosen = bracket.next(self.runner.jobs());
            if chosen.is_empty() || left.is_zero() {
                break;
            }
            let sizes: Vec<String> = chosen.iter().map(|&bytes| oomph_gpu::size::format(bytes)).collect();
            (self.tell)(&format!("running it on a card of {}", sizes.join(" and of ")));
            let cards: Vec<Vec<Card>> = chosen.iter().map(|&bytes| self.limited(&capacities(bytes))).collect();
            runs += u32::try_from(chosen.len()).unwrap_or(1);
            for ((bytes, cards), ended) in chosen.into_iter().zip(cards.iter()).zip(self.perform(&cards, left)) {
                let run = match ended? {
                    Ended::Observed(run) => run,
                    Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
                };
                if !run.is_done() {
                    is_over = true;
                    continue;
                }
                let report = assemble(cards, &run, None);
                tried.push((bytes, report.verdict == Verdict::Fits));
                if report.verdict != Verdict::Fits {
                    bracket.record(bytes, None);
                    continue;
                }
                // A run to which nothing was refused goes the same on a card that is just full at its peak, unless it
                // adapts to the card.
                let needed: Vec<u64> = report
                    .devices
                    .iter()
                    .zip(run.ledger.devices())
                    .zip(capacities(bytes))
                    .map(
                        |((device, books), had)| {
                            if books.refusals == 0 && !adapts { device.peak.process_bytes } else { had }
                        },
                    )
                    .collect();
                bracket.record(bytes, Some(needed[fullest].max(1)));
                if bracket.answer() == Some(needed[fullest].max(1)) {
                    best = Some((*run, cards.clone(), needed));
                }
            }
        }
        let fails = bracket.fails().map(&capacities);
        Ok(best.map(|(run, cards, capacities)| {
            let spreads =
                spreads(self.unlimited, &requests, |card| Some(capacities.get(card)?.saturating_sub(outside(card))));
            Found { run, cards, capacities, fails, runs, tried, spreads }
        }))
    }

    fn unlimited_cards(&self) -> Vec<Card> {
        self.cards.iter().map(Card::without_limit).collect()
    }

    fn limited(&self, capacities: &[u64]) -> Vec<Card> {
        self.cards.iter().zip(capacities).map(|(card, &bytes)| card.with_capacity(bytes)).collect()
    }

    /// Runs the program on each of some sets of cards, in parallel.
    fn perform(&self, cards: &[Vec<Card>], left: Duration) -> Vec<Result<Ended, Stop>> {
        let time_limit = left.max(self.unlimited.elapsed.saturating_mul(2));
        let timeout = Some(self.timeout.map_or(time_limit, |timeout| timeout.min(time_limit)));
        let run = |cards: &[Card]| self.runner.run(self.changes, cards, timeout).map_err(Stop::Failed);
        if let [one] = cards {
            return vec![run(one)];
        }
        std::thread::scope(|scope| {
            let running: Vec<_> = cards.iter().map(|cards| scope.spawn(|| run(cards))).collect();
            let lost = || Err(Stop::Failed(anyhow::anyhow!("a run ended without an answer")));
            running.into_iter().map(|run| run.join().unwrap_or_else(|_| lost())).collect()
        })
    }
}

//! Finds what a program needs: the smallest card that holds it.
//!
//! On a card without a limit the cache is never given back and cuDNN takes larger workspaces, so its peak there is not
//! what it needs. Replays of what it requested there foretell the smallest capacity, and runs on cards of about that size
//! confirm and correct it.

mod bracket;
mod rungs;

use std::time::Duration;

use oomph_explain::snapshot::Requests;
use oomph_gpu::{Catalogue, Gpu};
use oomph_launch::{Limits, Output, OwnLimit};
use oomph_ledger::UNBOUNDED_CAPACITY;
use oomph_report::{Allowed, CapacityKnown, DryRunReport, Verdict};

use crate::allowed;
use crate::assemble::{assemble, assemble_with};
use crate::cards::Card;
use crate::changes::Changes;
use crate::evidence::{Evidence, Found};
use crate::followed;
use crate::foretell::{self, foretold, recorded, spreads};
use crate::fork_runner::ForkRunner;
use crate::observation::Observation;
use crate::pool;
use crate::program::Program;
use crate::run_context::{Ended, RunContext, RunRequest};
use crate::trial::{Runner, Stop};
use crate::whole_pool;

use bracket::{Bracket, Closeness, GRANULE};
use rungs::Rungs;

/// The most runs of a search.
const MOST_RUNS: u32 = 8;
/// How often something new is begun of a program that takes long, with as many runs as go on at a time: what takes less than
/// [`AFFORDABLE`] in all is begun all the same.
const TIMES: u32 = 4;
/// The same for a program that starts an engine of its own, which takes a minute before it does anything.
const TIMES_OF_AN_ENGINE: u32 = 3;
/// What a search may take of the program's own time, whatever it finds.
const AFFORDABLE: Duration = Duration::from_secs(60);
/// How much of its own time a run may take: so much, or so many times as much as the program took on a card without a limit.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// On how many of the cards that should hold an engine it is run.
const MOST_CONFIRMED: usize = 3;

/// How much of its own time a program may take on cards without a limit, where a leak goes on forever: this much, or so many
/// times as much as its first run.
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
    let changes = whole_pool::as_on_a_card(&Changes::none(&program.command));
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
                let device = report.devices.get(card)?;
                Some(allowed::usable(device, cards[card].capacity_bytes()?, other).saturating_sub(other))
            };
            let (foretold, spreads) = (foretold(&requests), spreads(first, &requests, available));
            let evidence = Evidence { foretold: &foretold, spreads: &spreads, ..Evidence::default() };
            return Ok(assemble_with(cards, first, &evidence));
        }
        (false, Verdict::Fits) if first.is_done() => {
            runner.prepare(cards);
            let searched = search(first, false)?;
            return Ok(assemble_with(
                cards,
                first,
                &Evidence { found: searched.found.as_ref(), ..Evidence::default() },
            ));
        }
        _ => return Ok(report.clone()),
    }
    tell("it does not fit; running it on cards without a limit, to see all that it requests");
    let unlimited: Vec<Card> = cards.iter().map(Card::without_limit).collect();
    let own = OwnLimit::of(LONGEST_PROBE.max(first.own.saturating_mul(TIMES)));
    let ended = runner.perform(&RunRequest {
        changes: &changes,
        cards: &unlimited,
        output: Output::Capture,
        limits: Limits { clock: program.timeout, own: Some(&own) },
        history: true,
        keep: None,
        writes: false,
    });
    let probe = match ended.map_err(Stop::Failed)? {
        Ended::Observed(probe) => probe,
        Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
    };
    let searched = search(&probe, died)?;
    let found = searched.found.as_ref();
    let foretold = if found.is_none() { foretold(&recorded(&probe, cards.len())) } else { Vec::new() };
    let died_with = searched.died_with.as_slice();
    let evidence = Evidence { probe: Some(&probe), found, foretold: &foretold, died_with, ..Evidence::default() };
    let report = assemble_with(cards, first, &evidence);
    if !probe.takes_a_share() {
        return Ok(report);
    }
    let run_on = confirmed(&runner, &changes, program, &report, tell)?;
    Ok(assemble_with(cards, first, &Evidence { run_on: &run_on, ..evidence }))
}

/// Runs a program on the smallest cards that should hold it, until one does: an engine's defaults are other ones on other
/// cards, so that the size alone does not say which holds it. The card that held it, and those that are not to be named,
/// as [`Evidence::run_on`].
fn confirmed(
    runner: &dyn Runner,
    changes: &Changes,
    program: &Program,
    report: &DryRunReport,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Vec<(String, bool)>, Stop> {
    let mut run_on = Vec::new();
    let all = || report.fits_on.iter().filter_map(|id| Catalogue::builtin().get(id));
    let mut died_with = 0;
    for _ in 0..MOST_CONFIRMED {
        let larger = |gpu: &&Gpu| gpu.kind.is_card() && gpu.capacity_bytes > died_with;
        let Some(gpu) = all().filter(larger).min_by_key(|gpu| gpu.capacity_bytes) else { break };
        tell(&format!("running it on {}, the smallest card that should hold it", gpu.id));
        let same: Vec<Card> = program.cards.iter().map(|_| Card::of_catalogue(gpu)).collect();
        let limits = Limits::of_user(program.timeout);
        let run = match runner.run(changes, &same, limits).map_err(Stop::Failed)? {
            Ended::Observed(run) => run,
            Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
        };
        match assemble(&same, &run, None).verdict {
            Verdict::Oom | Verdict::Recovered => died_with = gpu.capacity_bytes,
            Verdict::Fits if run.is_done() => {
                run_on.push((gpu.id.clone(), true));
                break;
            }
            // It says nothing of the card's memory.
            _ => break,
        }
    }
    // Where one card does not hold it, none that is no larger is named.
    run_on.extend(all().filter(|gpu| gpu.capacity_bytes <= died_with).map(|gpu| (gpu.id.clone(), false)));
    Ok(run_on)
}

/// How often a program that takes so much of its own time is begun again for no more than [`AFFORDABLE`], as a power of two:
/// the same for times that are a little apart.
fn affordable(own: Duration) -> u32 {
    let times = AFFORDABLE.as_millis() / own.as_millis().max(1);
    (0..=MOST_RUNS.ilog2()).rev().map(|power| 1 << power).find(|power| u128::from(*power) <= times).unwrap_or(1)
}

/// What is known of the border between the capacities that are too small and those that hold a program, in bytes.
trait Border {
    /// The capacities to run next, at most `jobs`; none when the border is known closely enough.
    fn next(&self, jobs: usize) -> Vec<u64>;

    /// Takes what came of a run: the capacity that it needed of the one it had, or that it died.
    fn record(&mut self, capacity: u64, held: Option<u64>);

    /// The smallest capacity that was run and held it.
    fn answer(&self) -> Option<u64>;

    /// The largest capacity below the answer on which it was seen to die.
    fn fails(&self) -> Option<u64>;
}

/// What a search has come to.
#[derive(Default)]
pub struct Searched {
    /// The smallest capacity that held the program. `None` where none that was run did, or where the need is not found so.
    pub found: Option<Found>,
    /// The capacities that it was run on and that did not hold it, in bytes, ascending.
    pub died_with: Vec<u64>,
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
    /// How long a run may take by the clock, where the user said so.
    pub timeout: Option<Duration>,
    /// Whether the search is only the beginning of another one, so that a slow program is given less time.
    pub hurry: bool,
    /// Receives what is tried.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

/// What the run without a limit says of the capacities to try, by card.
struct Outlook {
    /// Whether the program adapts to the card.
    adapts: bool,
    /// What the card must have at least for what was at the peak, in bytes.
    peaks: Vec<u64>,
    /// What the framework had reserved at the peak, in bytes.
    reserved: Vec<Option<u64>>,
    /// What a card has to hold outside the framework's allocator, in bytes.
    outside: Vec<u64>,
    /// What the program lets PyTorch take of a card without a limit, where that is less than all.
    allowed: Vec<Option<Allowed>>,
    /// The least capacity that is foretold, in bytes.
    least: Vec<u64>,
    /// The card that is searched for: the others follow it.
    fullest: usize,
    /// What was requested.
    requests: Vec<Option<Requests>>,
}

impl Outlook {
    /// What a card has to hold outside the framework's allocator, in bytes.
    fn outside(&self, card: usize) -> u64 {
        self.outside[card]
    }

    /// The least capacity on which the program lets PyTorch reserve so many bytes; 0 where it sets no limit that follows the card.
    fn for_its_limit(&self, card: usize, reserved: u64) -> u64 {
        let allowed = self.allowed[card].as_ref();
        allowed.and_then(|one| allowed::least_capacity(one, UNBOUNDED_CAPACITY, reserved)).unwrap_or(0)
    }

    /// What the allocator can take of a card of so many bytes.
    fn available(&self, card: usize, capacity: u64) -> u64 {
        let most = self.allowed[card].map_or(u64::MAX, |one| allowed::limit_on(&one, UNBOUNDED_CAPACITY, capacity));
        capacity.saturating_sub(self.outside(card)).min(most)
    }

    /// The capacities of all cards where the fullest has so many bytes: the others in proportion to what is foretold for them.
    fn capacities(&self, bytes: u64) -> Vec<u64> {
        let scaled = |card: usize| {
            let share = u128::from(bytes) * u128::from(self.least[card]) / u128::from(self.least[self.fullest].max(1));
            // Of a card that is not used, a context is all that is taken.
            u64::try_from(share).unwrap_or(u64::MAX).next_multiple_of(GRANULE).max(1 << 30)
        };
        (0..self.peaks.len()).map(|card| if card == self.fullest { bytes } else { scaled(card) }).collect()
    }

    /// What each card has to have for a run that fitted where the fullest had so many bytes. A run to which nothing was refused
    /// goes the same on a card that is just full at its peak, unless it adapts to the card.
    fn needed(&self, report: &DryRunReport, run: &Observation, bytes: u64) -> Vec<u64> {
        let devices = report.devices.iter().zip(run.ledger.devices()).zip(self.capacities(bytes));
        let needed = devices.map(|((device, books), had)| {
            // The program's own limit refuses what the card never hears of.
            let refused = books.refusals > 0 || device.allowed.is_some_and(|allowed| allowed.gave_back);
            let took = device.peak.process_bytes.max(allowed::smallest_for(device, had));
            if refused || self.adapts { had } else { took }
        });
        needed.collect()
    }
}

impl Search<'_> {
    /// Searches. Nothing is found of a program whose need is not found so, because several processes share a card; then its
    /// peak is all that is known.
    ///
    /// A program may adapt to the card: XLA recomputes what a smaller one cannot hold, and a pool takes a share of it.
    /// Its peak without a limit says little then, and only the cards that it was run on count.
    ///
    /// # Errors
    /// When a run cannot be set up, or a signal ends one.
    pub fn run(&self) -> Result<Searched, Stop> {
        let Some(outlook) = self.outlook() else { return Ok(Searched::default()) };
        // What adapts runs once for each capacity, and takes the time of as many trials.
        let hurry = self.hurry && outlook.adapts;
        let affordable = affordable(self.unlimited.own);
        let times = if self.unlimited.takes_a_share() { TIMES_OF_AN_ENGINE } else { TIMES };
        let mut border = self.border(&outlook);
        let mut best: Option<(Observation, Vec<Card>, Vec<u64>)> = None;
        let (mut runs, mut rounds, mut is_over) = (0, 0, false);
        let mut tried = Vec::new();
        while runs < MOST_RUNS && !is_over {
            // Until one held it, a need is not known, and no card can be named.
            let most = match (best.is_some(), hurry) {
                (false, _) => affordable.max(times) * 2,
                (true, true) => affordable,
                (true, false) => affordable.max(times),
            };
            let chosen = border.next(self.runner.jobs());
            if chosen.is_empty() || rounds >= most {
                break;
            }
            rounds += 1;
            let sizes: Vec<String> = chosen.iter().map(|&bytes| oomph_gpu::size::format(bytes)).collect();
            (self.tell)(&format!("running it on a card of {}", sizes.join(" and of ")));
            let cards: Vec<Vec<Card>> = chosen.iter().map(|&bytes| self.limited(&outlook.capacities(bytes))).collect();
            runs += u32::try_from(chosen.len()).unwrap_or(1);
            for ((bytes, cards), ended) in chosen.into_iter().zip(cards.iter()).zip(self.perform(&cards)) {
                let run = match ended? {
                    Ended::Observed(run) => run,
                    Ended::Interrupted(signal, _) => return Err(Stop::Interrupted(signal)),
                };
                if !run.is_done() {
                    is_over = true;
                    continue;
                }
                let report = assemble(cards, &run, None);
                if report.verdict == Verdict::Failed {
                    // A run that ends in another error says nothing of the card.
                    let last =
                        run.stderr_tail.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
                    let size = oomph_gpu::size::format(bytes);
                    (self.tell)(&format!("it failed on a card of {size}, and not for lack of memory: {last}"));
                    is_over = true;
                    continue;
                }
                tried.push((bytes, report.verdict == Verdict::Fits));
                if report.verdict != Verdict::Fits {
                    border.record(bytes, None);
                    continue;
                }
                let needed = outlook.needed(&report, &run, bytes);
                let of_fullest = Some(needed[outlook.fullest].max(1));
                border.record(bytes, of_fullest);
                if border.answer() == of_fullest {
                    best = Some((*run, cards.clone(), needed));
                }
            }
        }
        let fails = border.fails().map(|bytes| outlook.capacities(bytes));
        let mut died_with: Vec<u64> = tried.iter().filter(|(_, held)| !held).map(|(bytes, _)| *bytes).collect();
        died_with.sort_unstable();
        let found = best.map(|(run, cards, capacities)| {
            let available = |card: usize| Some(outlook.available(card, *capacities.get(card)?));
            let spreads = spreads(self.unlimited, &outlook.requests, available);
            Found { run, cards, capacities, fails, runs, tried, spreads }
        });
        Ok(Searched { found, died_with })
    }

    /// What the run without a limit says of the capacities to try; `None` where the need is not found so.
    fn outlook(&self) -> Option<Outlook> {
        let report = assemble(&self.unlimited_cards(), self.unlimited, None);
        let used: Vec<usize> =
            (0..self.cards.len()).filter(|&card| foretell::users(self.unlimited, card) > 0).collect();
        let shared = used.iter().any(|&card| foretell::users(self.unlimited, card) > 1);
        // What was left out of loops that grow is not in any run.
        let grows = report.devices.iter().any(|device| followed::left_out_bytes(device, &report.loops) > 0);
        let whole = report.verdict == Verdict::Fits && self.unlimited.is_done() && !grows;
        if self.unlimited.takes_a_share() && whole {
            return self.outlook_for_a_share(&used);
        }
        if used.is_empty() || shared || !whole {
            return None;
        }
        let peaks: Vec<u64> = report
            .devices
            .iter()
            .zip(self.unlimited_cards())
            .enumerate()
            .map(|(index, (device, card))| {
                let seen = card.description(index).capacity_bytes;
                pool::smallest_for(device, seen).max(allowed::smallest_for(device, seen))
            })
            .collect();
        let requests = recorded(self.unlimited, self.cards.len());
        let adapts = report.devices.iter().any(|device| device.pool.is_some());
        let reserved = report.devices.iter().map(|device| device.peak.reserved_bytes).collect();
        let outside = report.devices.iter().map(|device| {
            let peak = pool::smallest_for(device, UNBOUNDED_CAPACITY);
            peak.saturating_sub(device.peak.reserved_bytes.unwrap_or(peak))
        });
        let outside = outside.collect();
        let allowed = report.devices.iter().map(|device| device.allowed).collect();
        let mut outlook =
            Outlook { adapts, peaks, reserved, outside, allowed, least: Vec::new(), fullest: 0, requests };
        let replayed = foretold(&outlook.requests);
        outlook.least = (0..outlook.peaks.len())
            .map(|card| {
                let whole = replayed[card].filter(|found| found.is_whole(outlook.reserved[card].unwrap_or(0)));
                whole.map_or(outlook.peaks[card], |found| {
                    found.least.saturating_add(outlook.outside(card)).max(outlook.for_its_limit(card, found.least))
                })
            })
            .map(|bytes| bytes.next_multiple_of(GRANULE))
            .collect();
        outlook.fullest = used.into_iter().max_by_key(|&card| outlook.least[card]).unwrap_or(0);
        Some(outlook)
    }

    /// The same for what takes a share of a card, whatever the share is: all cards alike, and nothing foretold. `None` where the
    /// search is in a hurry: every run starts an engine.
    fn outlook_for_a_share(&self, used: &[usize]) -> Option<Outlook> {
        let fullest = *used.first().filter(|_| !self.hurry)?;
        let least: Vec<u64> = (0..self.cards.len()).map(|card| used.contains(&card).into()).collect();
        let (reserved, requests) = (vec![None; least.len()], vec![None; least.len()]);
        let (outside, allowed) = (vec![0; least.len()], vec![None; least.len()]);
        Some(Outlook { adapts: true, peaks: least.clone(), reserved, outside, allowed, least, fullest, requests })
    }

    /// What is known of the fullest card's capacity before any run.
    fn border(&self, outlook: &Outlook) -> Box<dyn Border> {
        let (fullest, adapts) = (outlook.fullest, outlook.adapts);
        let died = self.died.then(|| self.cards[fullest].capacity_bytes()).flatten();
        if self.unlimited.takes_a_share() {
            return Box::new(Rungs::above(died).beginning_with(self.computed(fullest)));
        }
        let dies = died.filter(|&bytes| self.cards.len() == 1 && (adapts || bytes < outlook.peaks[fullest]));
        let closeness = if adapts { Closeness::Adapting } else { Closeness::Exact };
        Box::new(Bracket::new(dies.unwrap_or(0), outlook.least[fullest], outlook.peaks[fullest], closeness))
    }

    /// The smallest capacity that should do for an engine, by its figures from the run without a limit.
    fn computed(&self, card: usize) -> Option<u64> {
        let cards = self.unlimited_cards();
        let report = assemble(&cards, self.unlimited, None);
        let found = report.devices.get(card)?.smallest_capacity.as_ref()?;
        (found.how == CapacityKnown::Computed).then_some(found.capacity_bytes)
    }

    fn unlimited_cards(&self) -> Vec<Card> {
        self.cards.iter().map(Card::without_limit).collect()
    }

    fn limited(&self, capacities: &[u64]) -> Vec<Card> {
        self.cards.iter().zip(capacities).map(|(card, &bytes)| card.with_capacity(bytes)).collect()
    }

    /// Runs the program on each of some sets of cards, in parallel.
    fn perform(&self, cards: &[Vec<Card>]) -> Vec<Result<Ended, Stop>> {
        let longest = LONGEST_RUN.max(self.unlimited.own.saturating_mul(TIMES));
        let run = |cards: &[Card]| {
            let own = OwnLimit::of(longest);
            let limits = Limits { clock: self.timeout, own: Some(&own) };
            self.runner.run(self.changes, cards, limits).map_err(Stop::Failed)
        };
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

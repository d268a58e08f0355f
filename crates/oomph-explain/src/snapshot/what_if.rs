//! The same program under other settings and on other cards, by replay.

use oomph_allocator::{Backend, Capacity, Model, Replay, Settings, Spread, Start, Unlike, Version};
use oomph_trace::SourceKind;

use super::diff::growth;
use super::explanation::{SmallestCard, WhatIf};
use super::requests::Scripts;
use super::{Analysis, Card, Options};

/// Settings that are worth a try, as a user would write them. The defaults are tried as well where they are not what the
/// program ran with.
const SETTINGS: [&str; 5] = [
    "expandable_segments:True",
    "max_split_size_mb:128",
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:8",
    "backend:cudaMallocAsync",
];

/// Up to this many requests the smallest card is searched for to the end, which takes some dozens of replays.
const SEARCHED: usize = 300_000;

/// With more, so many requests are replayed in the search, which is cut short then.
const REPLAYED: usize = 6_000_000;

/// The fewest replays of such a search.
const FEWEST_REPLAYS: usize = 3;

/// What is said of every row when the replay does not fail where the program did.
const UNCLEAR: &str = "unclear: the replay does not fail where the program did";

/// What is said of every row of a recording that fails on a card of unknown size: no replay can fail on it.
const NO_CARD: &str = "unclear: the recording does not include the card's size; pass --gpu NAME or --vram SIZE";

/// What is said of every row when only the unknown limit of the card explains what was reserved.
const UNLIKE_RECORDED: &str = "unclear: without the card's size the replay does not reserve what the program did; pass \
                               --gpu NAME or --vram SIZE";

/// The same where the size of the card is known, so that it is something else.
const UNLIKE_ON_CARD: &str = "unclear: the replay does not reserve what the program did";

/// What is said of every row when the recording begins after the program had reserved more than it shows it to need.
const EARLIER: &str = "unclear: the program reserved more before the recording began than the recording shows it to \
                       need; record from its start";

/// What is said of every row of a profiler's recording without reserved memory.
const NOT_RECORDED: &str = "unclear: the recording does not say what was reserved";

/// What is said of a row of the driver's pool that no replay can vouch for.
const DRIVERS_POOL: &str = "not known: fragmentation in the driver's pool is not replayed";

/// What is said of a row that only smaller workspaces can save.
const PERHAPS: &str = "may survive: cuDNN takes smaller workspaces when memory is short";

/// What is said of a row that some places of the blocks save and others do not.
const BY_PLACES: &str = "depends on where the driver puts a few blocks";

/// Replays of each setting on the program's own card, each with segments elsewhere.
const ELSEWHERE: u32 = 24;

/// So many requests are replayed for that, in all rows together.
const REPLAYED_ELSEWHERE: usize = 30_000_000;

/// A difference below this share of the peak does not count.
const NOTICEABLE: f64 = 0.01;

/// The table, and the smallest card; empty where the recording has no events or nobody asks.
pub(super) fn what_if(analysis: &Analysis, options: &Options) -> (Vec<WhatIf>, Option<SmallestCard>) {
    let device = analysis.timeline.device;
    // The virtual GPU's own log is what a program asks of the driver: whatever allocator it has is not in it.
    if !options.what_if || device.events.is_empty() || analysis.trace.source == SourceKind::VirtualGpu {
        return (Vec::new(), None);
    }
    let scripts = Scripts::of(analysis.timeline, analysis.facts, analysis.phases, analysis.settings);
    if scripts.firm.is_empty() {
        return (Vec::new(), None);
    }
    let mut settings: Vec<Settings> = vec![analysis.settings.clone()];
    if *analysis.settings != Settings::default() {
        settings.push(Settings::default());
    }
    settings.extend(SETTINGS.iter().filter_map(|text| text.parse().ok()));
    settings.dedup();
    let version = options.version(analysis.trace);
    let runs: Vec<Run> = settings.into_iter().map(|settings| Run::new(&scripts, settings, version)).collect();

    let mut rows = Vec::new();
    // A replay that does not fail where the program did is wrong on every card.
    let mut unclear = None;
    for (card, own) in cards(analysis, options) {
        let recorded = runs[0].on(&card);
        if own {
            unclear = unlike(analysis, &runs[0], &card, &recorded);
        }
        // On the program's own card the recording itself says whether it passed; a replay that says otherwise is wrong
        // for every other setting as well.
        let died = if own { analysis.died } else { !recorded.survived };
        if unclear.is_none() && own && died && recorded.survived {
            unclear = Some(UNCLEAR);
        }
        for (index, run) in runs.iter().enumerate() {
            let as_recorded = index == 0;
            let replay = if as_recorded { recorded } else { run.on(&card) };
            let survives = if as_recorded { !died } else { replay.survived };
            let with_less = if survives || own && as_recorded { None } else { run.with_smaller_workspaces(&card) };
            let elsewhere = own.then(|| run.elsewhere(&card, runs.len())).flatten();
            let died_elsewhere = elsewhere.as_ref().map_or(0, |spread| spread.died);
            let replays = elsewhere.as_ref().map_or(0, |spread| spread.replays.len() as u32);
            let by_places = !as_recorded && (if survives { died_elsewhere > 0 } else { died_elsewhere < replays });
            let unproven = !as_recorded && survives && run.is_unproven(&card);
            // What was reserved is in the recording, whatever a replay says.
            let known = as_recorded && own && !died && unclear.is_some();
            let elsewhere = elsewhere.filter(|_| !known);
            let peak = if known { most_reserved(analysis) } else { replay.peak_reserved() };
            let difference = match unclear {
                Some(_) => 0,
                None => growth(recorded.peak_reserved(), replay.peak_reserved()),
            };
            rows.push(WhatIf {
                settings: run.settings.to_string(),
                as_recorded,
                card: card.name.clone(),
                capacity_bytes: card.capacity_bytes,
                survives: survives && !by_places && !unproven,
                may_survive: survives || by_places || with_less.is_some(),
                smaller_workspaces: with_less.unwrap_or(0),
                peak_reserved_bytes: peak,
                least_reserved_bytes: elsewhere.as_ref().map_or(peak, |spread| spread.low().min(peak)),
                most_reserved_bytes: elsewhere.as_ref().map_or(peak, |spread| spread.high().max(peak)),
                replays,
                replays_died: died_elsewhere,
                difference_bytes: difference,
                retries: replay.retries(),
                says: match (unclear, with_less) {
                    (Some(reason), _) => reason,
                    (None, _) if by_places => BY_PLACES,
                    (None, _) if unproven => DRIVERS_POOL,
                    (None, Some(_)) => PERHAPS,
                    (None, None) => {
                        let known = as_recorded && (own || !analysis.died);
                        says(known, died || analysis.died, survives, difference, recorded.peak_reserved())
                    }
                }
                .to_owned(),
            });
        }
    }
    let smallest = if unclear.is_none() { smallest(&runs[0], options, analysis) } else { None };
    (rows, smallest)
}

/// Whether a row says that nothing can be said.
pub(super) fn is_unclear(row: &WhatIf) -> bool {
    [UNCLEAR, NO_CARD, UNLIKE_RECORDED, UNLIKE_ON_CARD, EARLIER, NOT_RECORDED].contains(&row.says.as_str())
}

/// The highest that reserved memory was, as the recording has it. A block outside of all segments counts as one of its own.
fn most_reserved(analysis: &Analysis) -> u64 {
    analysis.timeline.reserved.iter().copied().max().unwrap_or(0).max(analysis.layout.reserved())
}

/// Why the replay on the program's own card is not the run that was recorded.
fn unlike(analysis: &Analysis, run: &Run, card: &Card, replay: &Replay) -> Option<&'static str> {
    let known = analysis.card.is_some();
    if analysis.died {
        // Whether a replay on a known card fails as well is checked with the rows.
        return (!known).then_some(NO_CARD);
    }
    if analysis.timeline.reserved.iter().all(|&bytes| bytes == 0) {
        return Some(NOT_RECORDED);
    }
    let reserved = most_reserved(analysis);
    let like = |replayed: u64| reserved.abs_diff(replayed) as f64 <= reserved as f64 * NOTICEABLE;
    // What depends on the places of a few blocks comes out as recorded in one of several replays.
    let spread = || run.elsewhere(card, 1).map_or(0..=0, |spread| spread.low()..=spread.high());
    if like(replay.peak_reserved()) || (known && spread().contains(&reserved)) {
        return None;
    }
    let first = analysis.timeline.reserved.first().copied().unwrap_or(0);
    match () {
        () if first > replay.peak_reserved() => Some(EARLIER),
        () if known => Some(UNLIKE_ON_CARD),
        () => Some(UNLIKE_RECORDED),
    }
}

/// The program's own card, or one without limit where it is not known, and the cards of the list.
fn cards(analysis: &Analysis, options: &Options) -> Vec<(Card, bool)> {
    let own = match analysis.card {
        Some(card) => Card {
            name: "this card".to_owned(),
            capacity_bytes: card.capacity_bytes,
            context_bytes: match card.context_bytes.saturating_add(card.other_bytes) {
                // Where no failure shows what PyTorch could have, the context's share is not known. What was reserved is
                // proof that it was no more than the rest.
                0 if analysis.oom.is_none() && options.context_bytes.is_none() => {
                    let reserved = analysis.timeline.reserved.iter().copied().max().unwrap_or(0);
                    usual_context(options).min(card.capacity_bytes.saturating_sub(reserved))
                }
                outside => outside,
            },
        },
        None => Card { name: "any card that is large enough".to_owned(), capacity_bytes: 0, context_bytes: 0 },
    };
    let mut cards = vec![(own, true)];
    cards.extend(options.cards.iter().map(|card| (card.clone(), false)));
    cards
}

/// What a context takes on the cards of the list at most: no process is without one.
fn usual_context(options: &Options) -> u64 {
    options.cards.iter().map(|card| card.context_bytes).max().unwrap_or(0)
}

/// The recording under one setting.
struct Run<'a> {
    scripts: &'a Scripts,
    settings: Settings,
    model: Model,
    unlimited: Replay,
}

impl<'a> Run<'a> {
    fn new(scripts: &'a Scripts, settings: Settings, version: Version) -> Self {
        let model = Model::pytorch(settings.clone(), version);
        let unlimited = scripts.firm.replay(&model, Capacity::UNLIMITED, Start::Cold);
        Self { scripts, settings, model, unlimited }
    }

    /// The replay on a card. Where the card holds what the script takes without a limit, the limit changes nothing,
    /// except for settings that look at the card's size.
    fn on(&self, card: &Card) -> Replay {
        let looks_at_card = self.settings.per_process_memory_fraction < 1.0;
        let available = card.capacity_bytes.saturating_sub(card.context_bytes);
        let needed = self.unlimited.peak_reserved().saturating_add(self.scripts.firm.most_outside());
        let room = available >= needed && self.unlimited.survived;
        if card.capacity_bytes == 0 || (room && !looks_at_card) {
            return self.unlimited;
        }
        self.scripts.firm.replay(&self.model, capacity_of(card), Start::Cold)
    }

    /// The replay on a card with segments elsewhere, as another driver may put them; `None` for a recording so long that
    /// a few such replays would take too long, and for the driver's own pool, which no place of a segment changes.
    fn elsewhere(&self, card: &Card, rows: usize) -> Option<Spread> {
        let requests = self.scripts.firm.len().max(1);
        let replays = u32::try_from(REPLAYED_ELSEWHERE / requests / rows.max(1)).unwrap_or(ELSEWHERE).min(ELSEWHERE);
        if replays == 0 || self.settings.backend == Backend::CudaMallocAsync {
            return None;
        }
        let capacity = if card.capacity_bytes == 0 { Capacity::UNLIMITED } else { capacity_of(card) };
        Some(self.scripts.firm.spread(&self.model, capacity, &Unlike::default(), 0..u64::from(replays)))
    }

    /// Whether a success of the replay promises too much: it lets the driver's pool use free memory wherever it lies, and a
    /// limited card can run out of contiguous memory before that.
    fn is_unproven(&self, card: &Card) -> bool {
        self.settings.backend == Backend::CudaMallocAsync && card.capacity_bytes > 0
    }

    /// How many convolutions find no memory for their workspace, if nothing else keeps the program from surviving on a
    /// card on which the script as recorded does not. What cuDNN takes instead is not in the recording.
    fn with_smaller_workspaces(&self, card: &Card) -> Option<u64> {
        let script = self.scripts.yielding.as_ref().filter(|_| card.capacity_bytes > 0)?;
        let replay = script.replay(&self.model, capacity_of(card), Start::Cold);
        (replay.survived && replay.done_without > 0).then_some(replay.done_without)
    }
}

fn capacity_of(card: &Card) -> Capacity {
    Capacity::card(card.capacity_bytes, card.context_bytes)
}

/// The words for a row. A recording that ends with a failure fits nowhere: on a card with more it gets past the failure.
fn says(as_recorded: bool, died: bool, survives: bool, difference: i64, peak: u64) -> &'static str {
    let noticeable = difference.unsigned_abs() as f64 > peak as f64 * NOTICEABLE;
    match (as_recorded, died, survives) {
        (true, true, _) => "runs out of memory",
        (true, false, _) => "fits",
        (false, true, true) => "gets past this allocation; the recording ends there",
        (false, true, false) => "does not get past it",
        (false, false, false) => "would run out of memory",
        (false, false, true) if noticeable && difference < 0 => "would take less",
        (false, false, true) if noticeable => "would take more",
        (false, false, true) => "would make no difference",
    }
}

/// The smallest card, under the settings of the recording.
fn smallest(run: &Run, options: &Options, analysis: &Analysis) -> Option<SmallestCard> {
    let scripts = run.scripts;
    let context = match analysis.card.map_or(options.context_bytes.unwrap_or(0), |card| card.context_bytes) {
        0 => usual_context(options),
        known => known,
    };
    let requests = scripts.firm.len();
    let (found, yielding) = if requests > SEARCHED {
        let replays = (REPLAYED / requests).max(FEWEST_REPLAYS) as u32;
        (scripts.firm.smallest_card_within(&run.model, context, &run.unlimited, replays)?, None)
    } else {
        let yielding = scripts.yielding.as_ref();
        (
            scripts.firm.smallest_card(&run.model, context)?,
            yielding.and_then(|script| script.smallest_card(&run.model, context)),
        )
    };
    let capacity = found.available.saturating_add(context);
    let mut cards: Vec<&Card> = options.cards.iter().collect();
    cards.sort_by_key(|card| card.capacity_bytes);
    let fits = |card: &&&Card| card.capacity_bytes.saturating_sub(card.context_bytes) >= found.available;
    Some(SmallestCard {
        settings: run.settings.to_string(),
        allocator_bytes: found.available,
        least_allocator_bytes: yielding.map_or(found.available, |least| least.available.min(found.available)),
        capacity_bytes: capacity,
        unsearched_bytes: found.unsearched,
        card: cards.iter().find(fits).map(|card| card.name.clone()),
    })
}

//! The same program under other settings and on other cards, by replay.

use oomph_allocator::{Capacity, Model, Replay, Script, Settings, Start, Version};

use super::diff::growth;
use super::explanation::{SmallestCard, WhatIf};
use super::{Card, Options, Scene};

/// Settings that are worth a try, as a user would write them. The defaults are tried as well where they are not what the
/// program ran with.
const SETTINGS: [&str; 5] = [
    "expandable_segments:True",
    "max_split_size_mb:128",
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:8",
    "backend:cudaMallocAsync",
];

/// Up to this many requests the smallest card is searched for, which takes some dozens of replays.
const SEARCHED: usize = 300_000;

/// What is said of every row when the replay fails to fail.
pub(super) const UNCLEAR: &str = "cannot be told: the replay does not fail where the program did";

/// A difference below this share of the peak is none.
const NOTICEABLE: f64 = 0.01;

/// The table, and the smallest card; empty where the recording has no events or nobody asks.
pub(super) fn what_if(scene: &Scene, options: &Options) -> (Vec<WhatIf>, Option<SmallestCard>) {
    let device = scene.timeline.device;
    if !options.what_if || device.events.is_empty() {
        return (Vec::new(), None);
    }
    let script = Script::new(device, scene.settings);
    if script.is_empty() {
        return (Vec::new(), None);
    }
    let mut settings: Vec<Settings> = vec![scene.settings.clone()];
    if *scene.settings != Settings::default() {
        settings.push(Settings::default());
    }
    settings.extend(SETTINGS.iter().filter_map(|text| text.parse().ok()));
    settings.dedup();
    let version = options.version(scene.trace);
    let runs: Vec<Run> = settings.into_iter().map(|settings| Run::new(&script, settings, version)).collect();

    let mut rows = Vec::new();
    for (card, own) in cards(scene, options) {
        let recorded = runs[0].on(&script, &card);
        // On the program's own card the recording itself says whether it passed; a replay that says otherwise is wrong
        // for every other setting as well.
        let died = if own { scene.died } else { !recorded.survived };
        let reproduced = !own || !died || !recorded.survived;
        for (index, run) in runs.iter().enumerate() {
            let replay = if index == 0 { recorded } else { run.on(&script, &card) };
            let survives = if index == 0 { !died } else { replay.survived };
            let difference = growth(recorded.peak_reserved(), replay.peak_reserved());
            rows.push(WhatIf {
                settings: run.settings.to_string(),
                as_recorded: index == 0,
                card: card.name.clone(),
                capacity_bytes: card.capacity_bytes,
                survives,
                peak_reserved_bytes: replay.peak_reserved(),
                difference_bytes: difference,
                retries: replay.retries(),
                says: match reproduced {
                    true => says(index == 0, died, survives, difference, recorded.peak_reserved()).to_owned(),
                    false => UNCLEAR.to_owned(),
                },
            });
        }
    }
    (rows, smallest(&script, &runs, options, scene))
}

/// The program's own card, or one without limit where it is not known, and the cards of the list.
fn cards(scene: &Scene, options: &Options) -> Vec<(Card, bool)> {
    let own = match scene.card {
        Some(card) => Card {
            name: "this card".to_owned(),
            capacity_bytes: card.capacity_bytes,
            context_bytes: card.context_bytes.saturating_add(card.other_bytes),
        },
        None => Card { name: "any card that is large enough".to_owned(), capacity_bytes: 0, context_bytes: 0 },
    };
    let mut cards = vec![(own, true)];
    cards.extend(options.cards.iter().map(|card| (card.clone(), false)));
    cards
}

/// The script under one setting.
struct Run {
    settings: Settings,
    model: Model,
    unlimited: Replay,
}

impl Run {
    fn new(script: &Script, settings: Settings, version: Version) -> Self {
        let model = Model::pytorch(settings.clone(), version);
        let unlimited = script.replay(&model, Capacity::UNLIMITED, Start::Cold);
        Self { settings, model, unlimited }
    }

    /// The replay on a card. Where the card holds what the script takes without a limit, the limit changes nothing,
    /// except for settings that look at the card's size.
    fn on(&self, script: &Script, card: &Card) -> Replay {
        let looks_at_card = self.settings.per_process_memory_fraction < 1.0;
        let available = card.capacity_bytes.saturating_sub(card.context_bytes);
        let room = available >= self.unlimited.peak_reserved() && self.unlimited.survived;
        if card.capacity_bytes == 0 || (room && !looks_at_card) {
            return self.unlimited;
        }
        script.replay(&self.model, Capacity::card(card.capacity_bytes, card.context_bytes), Start::Cold)
    }
}

fn says(as_recorded: bool, died: bool, survives: bool, difference: i64, peak: u64) -> &'static str {
    let noticeable = difference.unsigned_abs() as f64 > peak as f64 * NOTICEABLE;
    match (as_recorded, died, survives) {
        (true, true, _) => "runs out of memory",
        (true, false, _) => "fits",
        (false, true, true) => "would have saved it",
        (false, true, false) => "would not have helped",
        (false, false, false) => "would run out of memory",
        (false, false, true) if noticeable && difference < 0 => "would take less",
        (false, false, true) if noticeable => "would take more",
        (false, false, true) => "would make no difference",
    }
}

/// The smallest card, under the settings that need the least.
fn smallest(script: &Script, runs: &[Run], options: &Options, scene: &Scene) -> Option<SmallestCard> {
    if script.len() > SEARCHED {
        return None;
    }
    let context = scene.card.map_or(options.context_bytes.unwrap_or(0), |card| card.context_bytes);
    let run = runs.first()?;
    let found = script.smallest_card(&run.model, context)?;
    let capacity = found.available.saturating_add(context);
    let mut cards: Vec<&Card> = options.cards.iter().collect();
    cards.sort_by_key(|card| card.capacity_bytes);
    let fits = |card: &&&Card| card.capacity_bytes.saturating_sub(card.context_bytes) >= found.available;
    Some(SmallestCard {
        settings: run.settings.to_string(),
        allocator_bytes: found.available,
        capacity_bytes: capacity,
        card: cards.iter().find(fits).map(|card| card.name.clone()),
    })
}

//! Predicts the smallest card by replay: the recorded requests go through the allocator's model at each size.

use oomph_allocator::{Capacity, Script, Spread, Start, Unlike};
use oomph_explain::snapshot::{Options, Requests, requests};

use crate::evidence::Foretold;
use crate::observation::{Observation, device_map};
use crate::recordings::ProcessMemory;

/// Up to this many requests the smallest card is searched for to the end, which takes some dozens of replays.
const SEARCHED: usize = 300_000;
/// With more, so many requests are replayed in the search.
const REPLAYED: usize = 6_000_000;

/// What was requested on each card of a run. `None` where nothing was recorded, where the recording lacks its beginning,
/// and where more than one process used the card.
pub fn recorded(run: &Observation, cards: usize) -> Vec<Option<Requests>> {
    let mut all: Vec<Option<Requests>> = vec![None; cards];
    for (card, requests) in of_cards(run) {
        if let Some(place) = all.get_mut(card) {
            *place = (users(run, card) == 1 && !requests.truncated).then_some(requests);
        }
    }
    all
}

/// What replays say of each card of a run.
pub fn foretold(recorded: &[Option<Requests>]) -> Vec<Option<Foretold>> {
    recorded.iter().map(|requests| requests.as_ref().and_then(smallest_of)).collect()
}

/// How far it may come out otherwise on a real card. `available` is what the allocator can take of each card, in bytes:
/// `None` without a limit.
pub fn spreads(
    run: &Observation,
    recorded: &[Option<Requests>],
    available: impl Fn(usize) -> Option<u64>,
) -> Vec<Option<Spread>> {
    // The program's own cuDNN says what its algorithms take. Where that could not be asked, others may be chosen.
    let workspaces = run.ledger.warnings().iter().any(|warning| warning.contains("cuDNN"));
    let of_card = |(card, requests): (usize, &Option<Requests>)| {
        let requests = requests.as_ref()?;
        let script = requests.yielding.as_ref().unwrap_or(&requests.firm);
        let capacity = match available(card) {
            Some(available) => Capacity { total: available, available },
            None => Capacity::UNLIMITED,
        };
        let seeds = 0..script.affordable_replays().into();
        let unlike = Unlike { step_ends: &requests.step_ends, workspaces };
        Some(script.spread(&requests.model, capacity, &unlike, seeds))
    };
    recorded.iter().enumerate().map(of_card).collect()
}

/// The recorded requests of one process, with the card of the run on which they were made.
pub fn recorded_by(run: &Observation, pid: u32) -> Vec<(usize, Requests)> {
    of_processes(run, |process| process.pid == pid)
}

/// The recorded requests of all.
fn of_cards(run: &Observation) -> Vec<(usize, Requests)> {
    of_processes(run, |_| true)
}

fn of_processes(run: &Observation, is_one: impl Fn(&ProcessMemory) -> bool) -> Vec<(usize, Requests)> {
    let of_process = |process: &ProcessMemory| {
        let hook = run.hooks.reports.iter().find(|hook| hook.pid == process.pid);
        let map = hook.map(|hook| device_map(hook, &run.ledger)).unwrap_or_default();
        let options = Options { version: hook.and_then(version), ..Options::default() };
        let card = |index: u32| map.get(&index).copied().unwrap_or(index as usize);
        let all = requests(&process.trace, &options, process.names.as_ref());
        all.into_iter().map(|requests| (card(requests.index), requests)).collect::<Vec<_>>()
    };
    run.memory.iter().filter(|process| is_one(process)).flat_map(of_process).collect()
}

/// How many processes took memory of a card.
pub fn users(run: &Observation, card: usize) -> usize {
    let took = |books: &oomph_ledger::ProcessDeviceUse| books.peak_bytes > 0;
    run.ledger.processes().iter().filter(|process| process.devices.get(card).is_some_and(took)).count()
}

/// The rules of the program's own PyTorch.
fn version(hook: &oomph_launch::HookReport) -> Option<oomph_allocator::Version> {
    hook.frameworks.get("torch")?.parse().ok()
}

/// What the allocator can do with, by replays of what was requested.
pub fn smallest_of(requests: &Requests) -> Option<Foretold> {
    let free = requests.firm.replay(&requests.model, Capacity::UNLIMITED, Start::Cold);
    let smallest = |script: &Script| {
        let found = if script.len() > SEARCHED {
            let free = script.replay(&requests.model, Capacity::UNLIMITED, Start::Cold);
            let replays = u32::try_from(REPLAYED / script.len().max(1)).unwrap_or(1).max(3);
            script.smallest_card_within(&requests.model, 0, &free, replays)
        } else {
            script.smallest_card(&requests.model, 0)
        };
        found.map(|found| found.available)
    };
    let firm = smallest(&requests.firm)?;
    let least = requests.yielding.as_ref().and_then(smallest).unwrap_or(firm).min(firm);
    Some(Foretold { firm, least, reserved: free.peak_reserved() })
}

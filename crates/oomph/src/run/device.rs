//! The cards of a guarded run: this machine's own with their free memory, or virtual ones instead.

use std::time::{Duration, Instant};

use anyhow::Result;
use oomph_gpu::nvml::InstalledGpu;
use oomph_gpu::{Catalogue, size};

use crate::cards::{self, Card, visible_here};
use crate::failure::hinted;
use crate::syntax::NamedCards;

/// How long the memory of a program that has ended may take to become free.
const UNTIL_FREE: Duration = Duration::from_secs(30);

/// Between two looks at the card.
const LOOK: Duration = Duration::from_millis(500);

/// Memory that is in use by one look and free by the next, in bytes, is no reason to go on waiting.
const SETTLED: u64 = 64 << 20;

/// The cards that a program runs on.
pub struct Devices {
    /// Virtual cards in place of the machine's own.
    pub stand_in: Option<Vec<Card>>,
    /// What `--vram` leaves of each, in bytes.
    pub limit_bytes: Option<u64>,
    /// What was free on the machine's cards before the first start, in bytes.
    before: Vec<u64>,
}

impl Devices {
    /// The cards that `--rehearse` names, else this machine's, with so many bytes of each.
    ///
    /// # Errors
    /// When there are too many, or none.
    pub fn new(rehearse: Option<NamedCards>, limit_bytes: Option<u64>) -> Result<Self> {
        if let Some(named) = rehearse {
            let stand_in = cards::cards(&[named], limit_bytes, || Ok(Vec::new()))?;
            // The virtual card already has that size.
            return Ok(Self { stand_in: Some(stand_in), limit_bytes: None, before: Vec::new() });
        }
        let found = visible_here()?;
        if found.is_empty() {
            return Err(hinted(
                "this machine has no NVIDIA GPU to run on",
                "rehearse the run on a virtual one: oomph run --rehearse rtx-4090 -- CMD",
            ));
        }
        let before = found.iter().map(free).collect();
        Ok(Self { stand_in: None, limit_bytes, before })
    }

    /// The virtual twins of the cards, each with what is free on it now.
    ///
    /// # Errors
    /// When the machine's cards cannot be read.
    pub fn twins(&self) -> Result<Vec<Card>> {
        if let Some(cards) = &self.stand_in {
            return Ok(cards.clone());
        }
        let twin = |found: &InstalledGpu| {
            let bytes = free(found).min(self.limit_bytes.unwrap_or(u64::MAX));
            let named = found.entry(Catalogue::builtin()).map(NamedCards::one);
            let cards = cards::cards(named.as_slice(), Some(bytes), || Ok(Vec::new()))?;
            cards.into_iter().next().ok_or_else(|| anyhow::anyhow!("{} has no virtual twin", found.name))
        };
        visible_here()?.iter().map(twin).collect()
    }

    /// Waits until the memory of a program that has ended is free again: the driver takes it back after the process is
    /// gone. Another process may have taken it meanwhile, so the wait has an end.
    pub fn wait_until_free(&self) {
        let start = Instant::now();
        let mut last = Vec::new();
        while self.stand_in.is_none() && start.elapsed() < UNTIL_FREE {
            let Ok(found) = visible_here() else { return };
            let now: Vec<u64> = found.iter().map(free).collect();
            let is_back = now.iter().zip(&self.before).all(|(now, before)| now.saturating_add(SETTLED) >= *before);
            if is_back && now == last {
                return;
            }
            last = now;
            std::thread::sleep(LOOK);
        }
    }

    /// The cards in a few words.
    pub fn shown(&self) -> String {
        match &self.stand_in {
            Some(cards) => cards.iter().map(|card| card.gpu.name.clone()).collect::<Vec<_>>().join(", "),
            None => {
                let found = visible_here().unwrap_or_default();
                let card = |found: &InstalledGpu| format!("{} ({} free)", found.name, size::format(free(found)));
                found.iter().map(card).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// What is free on a card, in bytes; 0 where that cannot be read.
fn free(found: &InstalledGpu) -> u64 {
    found.memory.as_ref().map_or(0, |memory| memory.free_bytes)
}

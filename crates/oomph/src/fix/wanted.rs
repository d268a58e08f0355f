//! The request for a search, in addition to the program.

use std::time::Duration;

use anyhow::Result;
use oomph_remedy::search::Wishes;

use crate::cards::Card;
use crate::failure::hinted;

/// What was asked for, in addition to the program.
pub struct Wanted {
    /// The cards with what the program may take of them.
    pub cards: Vec<Card>,
    /// Which remedies may be tried.
    pub wishes: Wishes,
    /// How many different fixes are looked for.
    pub fixes: usize,
    /// How many trials may run at a time.
    pub jobs: usize,
    /// How long it is searched, once it is known what the program needs, where that was said.
    pub max_time: Option<Duration>,
    /// Whether a program fits that runs out of memory, catches the error and goes on.
    pub accept_recovered: bool,
    /// Whether what is found is run with real numbers and compared with the program.
    pub compares: bool,
    /// The options that say what fits, as typed, ready for a shell.
    pub options: Vec<String>,
}

/// The cards with what the program may take of them: up to `target` bytes of each.
///
/// # Errors
/// When a card without a limit gets none.
pub fn limited(cards: &[Card], target: Option<u64>) -> Result<Vec<Card>> {
    let limited = |card: &Card| match (card.capacity_bytes(), target) {
        (Some(capacity), Some(target)) if target < capacity => Ok(card.with_capacity(target)),
        (Some(_), _) => Ok(card.clone()),
        (None, Some(target)) => Ok(card.with_capacity(target)),
        (None, None) => Err(hinted(
            "on a card without a limit everything fits",
            "name a card with --gpu, or a size with --vram or --target",
        )),
    };
    cards.iter().map(limited).collect()
}

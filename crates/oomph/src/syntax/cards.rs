//! Cards by their names in the catalogue, and how many of each.

use oomph_gpu::{Catalogue, Gpu};
use oomph_report::clean;

use super::Typed;
use crate::failure::Hinted;

/// A plan is for at most so many cards.
const MOST_PLANNED: usize = 100_000;

/// Equal cards that were named.
#[derive(Clone, Copy, Debug)]
pub struct NamedCards {
    /// The card.
    pub gpu: &'static Gpu,
    /// How many of it; at least 1.
    pub count: usize,
}

impl NamedCards {
    /// One card.
    pub fn one(gpu: &'static Gpu) -> Self {
        Self { gpu, count: 1 }
    }
}

impl Typed<NamedCards> {
    /// One card, by the name that the catalogue has for it.
    pub fn card(gpu: &'static Gpu) -> Self {
        Self { value: NamedCards::one(gpu), text: gpu.id.clone() }
    }
}

/// A card by any of its names.
///
/// # Errors
/// When the catalogue has no such card.
pub fn gpu(_option: &str, name: &str) -> Result<&'static Gpu, Hinted> {
    Catalogue::builtin().find(name).map_err(|unknown| {
        let hint = match unknown.nearest.as_slice() {
            [] => "`oomph gpus` lists the cards; --vram SIZE takes any capacity".to_owned(),
            nearest => format!("did you mean {}? `oomph gpus` lists all", list(nearest)),
        };
        // The name may hold anything; the line must stay one.
        Hinted::new(format!("there is no GPU `{}` in the catalogue", clean(&unknown.text)), hint)
    })
}

/// `NAME` or `NAME:COUNT`.
///
/// # Errors
/// When the catalogue has no such card, or the count is not one.
pub fn cards(option: &str, text: &str) -> Result<NamedCards, Hinted> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Hinted::new(format!("{option} has an empty name"), "`oomph gpus` lists the cards"));
    }
    let Some((name, typed)) = text.rsplit_once(':') else { return gpu(option, text).map(NamedCards::one) };
    match typed.trim().parse::<usize>() {
        Ok(count @ 1..) => Ok(NamedCards { gpu: gpu(option, name)?, count }),
        _ => Err(Hinted::new(
            format!("`{typed}` in {option} {text} is not a number of cards"),
            format!("{option} {name}:2 means two of them"),
        )),
    }
}

/// As [`cards`], for a plan.
///
/// # Errors
/// As [`cards`], and when they are more than a plan is for.
pub fn planned_cards(option: &str, text: &str) -> Result<NamedCards, Hinted> {
    cards(option, text).and_then(|cards| few_enough(option, text, cards))
}

/// `COUNTxNAME`, or `NAME`, which may begin with letters and an `x` itself.
///
/// # Errors
/// When the catalogue has no such card, or the count is not one.
pub fn counted_cards(option: &str, text: &str) -> Result<NamedCards, Hinted> {
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = text.split_once(['x', 'X']).map(|(count, name)| (count.trim(), name));
    let Some((typed, name)) = parts.filter(|(count, _)| is_count(count)) else {
        return gpu(option, text).map(NamedCards::one);
    };
    match typed.parse::<usize>() {
        Ok(count @ 1..) => few_enough(option, text, NamedCards { gpu: gpu(option, name)?, count }),
        _ => Err(Hinted::new(
            format!("`{typed}` in {option} {text} is not a number of cards"),
            format!("{option} 8x{name} means eight of them"),
        )),
    }
}

fn few_enough(option: &str, text: &str, cards: NamedCards) -> Result<NamedCards, Hinted> {
    if cards.count <= MOST_PLANNED {
        return Ok(cards);
    }
    Err(Hinted::new(
        format!("{option} {text} names more cards than a plan is for"),
        format!("a plan is for at most {MOST_PLANNED} cards"),
    ))
}

/// `a`, `a or b`, `a, b or c`.
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

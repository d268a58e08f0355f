//! Conditions on a card's memory: `free>8GiB`, `used<10%`.

use std::fmt;

use oomph_gpu::size;
use oomph_report::clean;

use super::Amount;
use crate::failure::Hinted;

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Which memory it is about.
    pub memory: Memory,
    /// Whether there has to be more than the limit.
    pub is_above: bool,
    /// The limit; a share is one of the whole card.
    pub limit: Amount,
    text: String,
}

/// What a card's memory is at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Free.
    Free,
    /// In use.
    Used,
}

impl Condition {
    /// A card that is nearly full.
    pub fn nearly_full() -> Self {
        Self { memory: Memory::Free, is_above: false, limit: Amount::Percent(10.0), text: "free<10%".into() }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// A condition.
///
/// # Errors
/// When it is not one.
pub fn condition(option: &str, text: &str) -> Result<Condition, Hinted> {
    let wrong = |what: &str| {
        Hinted::new(
            format!("{option} `{}`: {what}", clean(text)),
            format!("write {option} 'free>8GiB', {option} 'free>20%' or {option} 'used<2GiB'"),
        )
    };
    let trimmed = text.trim();
    let (memory, rest) = match (trimmed.strip_prefix("free"), trimmed.strip_prefix("used")) {
        (Some(rest), _) => (Memory::Free, rest),
        (_, Some(rest)) => (Memory::Used, rest),
        _ => return Err(wrong("it begins with neither `free` nor `used`")),
    };
    let rest = rest.trim_start();
    let (is_above, rest) = match (rest.strip_prefix('>'), rest.strip_prefix('<')) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err(wrong("there is neither `>` nor `<` after its first word")),
    };
    let limit = rest.strip_prefix('=').unwrap_or(rest).trim();
    let limit = match limit.strip_suffix('%') {
        Some(percent) => match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Amount::Percent(percent),
            _ => return Err(wrong("that is not a percentage from 0 to 100")),
        },
        None => Amount::Bytes(size::parse(limit).map_err(|error| wrong(&error.to_string()))?),
    };
    Ok(Condition { memory, is_above, limit, text: trimmed.to_owned() })
}

//! The memory that has to stay free on a card: a size, or a share of the card.

use anyhow::Result;
use oomph_gpu::size;

use crate::cards::Card;
use crate::failure::hinted;

const HINT: &str = "write --margin 512MiB or --margin 10%";

/// A margin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// So many bytes.
    Bytes(u64),
    /// So much of the card in percent, less than 100.
    Percent(f64),
}

impl Margin {
    /// No margin.
    pub const NONE: Self = Self::Bytes(0);

    /// What `--margin` says.
    ///
    /// # Errors
    /// When it is neither a size nor a percentage below 100.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || hinted(format!("--margin `{}` is not a size", oomph_report::clean(text)), HINT);
        let Some(percent) = text.trim().strip_suffix('%') else {
            return size::parse(text).map(Self::Bytes).map_err(|_| wrong());
        };
        let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
        if (0.0..100.0).contains(&percent) { Ok(Self::Percent(percent)) } else { Err(wrong()) }
    }

    /// The margin of a card with so many bytes, in bytes.
    pub fn of(self, capacity_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (capacity_bytes as f64 * percent / 100.0) as u64,
        }
    }

    /// The cards without it.
    ///
    /// # Errors
    /// When it leaves nothing of one.
    pub fn off(self, cards: &[Card]) -> Result<Vec<Card>> {
        let less = |card: &Card| {
            let Some(capacity) = card.capacity_bytes() else { return Ok(card.clone()) };
            let margin = self.of(capacity);
            match capacity.checked_sub(margin) {
                Some(_) if margin == 0 && capacity > 0 => Ok(card.clone()),
                Some(left) if left > 0 => Ok(card.with_capacity(left)),
                _ => Err(hinted(format!("--margin leaves nothing of {}", size::format(capacity)), HINT)),
            }
        };
        cards.iter().map(less).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_a_size_or_a_share_of_the_card() {
        assert_eq!(Margin::parse("1GiB").unwrap().of(8 << 30), 1 << 30);
        assert_eq!(Margin::parse(" 25 % ").unwrap().of(8 << 30), 2 << 30);
        for wrong in ["", "much", "100%", "-1%", "x%"] {
            assert!(Margin::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}

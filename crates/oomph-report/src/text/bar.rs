//! Draws a bar that shows how full a card is.

use super::page::{Ink, Page};

/// A part of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Live tensors.
    Allocated,
    /// Reserved by the framework, not allocated.
    Cached,
    /// The CUDA context and what other libraries hold.
    Context,
    /// Not in use.
    Free,
}

impl Part {
    /// The glyph that fills this part. It distinguishes the parts without colour.
    pub(crate) fn glyph(self, unicode: bool) -> &'static str {
        match (self, unicode) {
            (Self::Allocated, true) => "█",
            (Self::Cached, true) => "▓",
            (Self::Context, true) => "▒",
            (Self::Free, true) => "░",
            (Self::Allocated, false) => "#",
            (Self::Cached, false) => "+",
            (Self::Context, false) => "=",
            (Self::Free, false) => ".",
        }
    }

    pub(crate) fn ink(self) -> Ink {
        match self {
            Self::Allocated => Ink::Allocated,
            Self::Cached => Ink::Cached,
            Self::Context => Ink::Context,
            Self::Free => Ink::Faint,
        }
    }
}

/// Shares `cells` among `values` in proportion, giving every value that is not zero at least one cell while there are
/// enough. The cells used are exactly `cells` where any value is not zero.
#[must_use]
pub fn share(values: &[u64], cells: usize) -> Vec<usize> {
    let total: u128 = values.iter().map(|value| u128::from(*value)).sum();
    if total == 0 {
        return vec![0; values.len()];
    }
    let mut shares: Vec<usize> = values
        .iter()
        .map(|value| {
            let exact = u128::from(*value) * cells as u128 / total;
            usize::try_from(exact).unwrap_or(cells).max(usize::from(*value > 0))
        })
        .collect();
    // Rounding down leaves some cells over, and the least of one may have taken too many: the largest part, where it
    // shows least, settles it.
    loop {
        let used: usize = shares.iter().sum();
        let Some((largest, _)) = shares.iter().enumerate().max_by_key(|(_, share)| **share) else { break };
        if used < cells {
            shares[largest] += cells - used;
        } else if used > cells && shares[largest] > 0 {
            shares[largest] -= 1;
        } else {
            break;
        }
    }
    shares
}

/// Draws one bar of at most `cells` columns behind `label`. `parts` are in bytes; `scale` is what the whole width stands
/// for, and `mark` is where the card ends, if the bar goes on beyond it.
pub(crate) fn draw(page: &mut Page, label: &str, parts: &[(Part, u64)], scale: u64, mark: Option<u64>, cells: usize) {
    let used: u64 = parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let (end, mark) = match mark {
        Some(at) => (at, Some(share(&[at, scale.saturating_sub(at)], cells)[0])),
        None => (scale, None),
    };
    // What lies within the card must be drawn within it, though small parts are given more room than they have.
    let (total, cells) = match mark {
        Some(mark) if used <= end => (end, mark),
        _ => (scale, cells),
    };
    let mut values: Vec<u64> = parts.iter().map(|(_, bytes)| *bytes).collect();
    values.push(total.saturating_sub(used));
    let shares = share(&values, cells);
    let unicode = page.unicode();
    let (edge, mut column) = (if unicode { "│" } else { "|" }, 0);
    let mut pieces: Vec<(Ink, String)> = vec![(Ink::Plain, label.to_owned())];
    for ((part, _), cells) in parts.iter().zip(&shares) {
        let glyph = part.glyph(unicode);
        match mark {
            Some(mark) if (column..column + cells).contains(&mark) => {
                pieces.push((part.ink(), glyph.repeat(mark - column)));
                pieces.push((Ink::Bad, edge.into()));
                pieces.push((part.ink(), glyph.repeat(column + cells - mark)));
            }
            _ => pieces.push((part.ink(), glyph.repeat(*cells))),
        }
        column += cells;
    }
    if mark == Some(column) {
        pieces.push((Ink::Bad, edge.into()));
    }
    let pieces: Vec<(Ink, &str)> = pieces.iter().map(|(ink, text)| (*ink, text.as_str())).collect();
    page.line(2, &pieces);
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up_and_nothing_vanishes() {
        assert_eq!(share(&[50, 50], 10), [5, 5]);
        assert_eq!(share(&[1_000_000, 1, 1], 10), [8, 1, 1]);
        assert_eq!(share(&[0, 0], 10), [0, 0]);
        assert_eq!(share(&[u64::MAX, u64::MAX, 0], 7).iter().sum::<usize>(), 7);
        assert_eq!(share(&[1, 1, 1, 1], 2).iter().sum::<usize>(), 2);
    }
}

//! What the used memory of a card consists of, as parts of a bar.

use oomph_report::{WatchedGpu, bar_cells};

/// A part of a card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Live tensors of the frameworks.
    Allocated,
    /// Reserved by the frameworks, not allocated.
    Cached,
    /// What processes with a framework hold outside it.
    Outside,
    /// Processes that report nothing, and what the driver counts for no process.
    Other,
    /// Not in use.
    Free,
}

impl Part {
    /// All of them, in the order in which they lie in a bar.
    pub const ALL: [Self; 5] = [Self::Allocated, Self::Cached, Self::Outside, Self::Other, Self::Free];

    /// Its name in the legend.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Cached => "cached",
            Self::Outside => "outside",
            Self::Other => "other",
            Self::Free => "free",
        }
    }

    /// What it is filled with. The glyphs differ, so that colour only repeats them.
    pub fn glyph(self, unicode: bool) -> &'static str {
        match (self, unicode) {
            (Self::Allocated, true) => "█",
            (Self::Cached, true) => "▓",
            (Self::Outside, true) => "▒",
            (Self::Other, true) => "▚",
            (Self::Free, true) => "░",
            (Self::Allocated, false) => "#",
            (Self::Cached, false) => "+",
            (Self::Outside, false) => "=",
            (Self::Other, false) => "%",
            (Self::Free, false) => ".",
        }
    }
}

/// The bytes of each part, in the order of [`Part::ALL`]; `None` where the card's memory is not known.
///
/// The figures are sums of those in the report. They are of slightly different moments, so each part takes no more than
/// those before it leave of what the driver calls used.
pub fn bytes(card: &WatchedGpu) -> Option<[u64; 5]> {
    let (used, free) = (card.used_bytes?, card.free_bytes?);
    let frameworks = || card.processes.iter().filter_map(|process| process.framework.as_ref());
    let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
    let allocated = sum(&mut frameworks().map(|framework| framework.allocated_bytes)).min(used);
    let cached = sum(&mut frameworks().map(|framework| framework.cached_bytes)).min(used - allocated);
    let left = used - allocated - cached;
    let outside = sum(&mut card.processes.iter().filter_map(|process| process.outside_bytes)).min(left);
    Some([allocated, cached, outside, left - outside, free])
}

/// The bar of a card: parts and how many columns each has.
pub fn cells(bytes: &[u64; 5], columns: usize) -> Vec<(Part, usize)> {
    // A part of a few bytes has a column too, so that its glyph is on the screen with its name.
    Part::ALL.into_iter().zip(bar_cells(bytes, columns)).collect()
}

#[cfg(test)]
mod tests {
    use oomph_report::{WatchedFramework, WatchedProcess};

    use super::*;

    #[test]
    fn parts_never_exceed_what_is_used() {
        let process = WatchedProcess {
            framework: Some(WatchedFramework { allocated_bytes: 50, cached_bytes: 20, ..WatchedFramework::default() }),
            outside_bytes: Some(10),
            ..WatchedProcess::default()
        };
        let card = |used| WatchedGpu {
            used_bytes: Some(used),
            free_bytes: Some(100 - used),
            processes: vec![process.clone()],
            ..WatchedGpu::default()
        };
        assert_eq!(bytes(&card(90)), Some([50, 20, 10, 10, 10]));
        assert_eq!(bytes(&card(60)), Some([50, 10, 0, 0, 40]));
        assert_eq!(bytes(&card(0)), Some([0, 0, 0, 0, 100]));
        assert_eq!(bytes(&WatchedGpu::default()), None);
        let columns = |bytes, columns| cells(bytes, columns).iter().map(|cell| cell.1).collect::<Vec<_>>();
        assert_eq!(columns(&[50, 20, 10, 10, 10], 10), [5, 2, 1, 1, 1]);
        assert_eq!(columns(&[1, 0, 0, 0, 99], 0).iter().sum::<usize>(), 0);
        assert_eq!(columns(&[u64::MAX; 5], 7).iter().sum::<usize>(), 7);
    }
}

//! Computes how much each group holds over time, at a resolution that a page can draw at once.
//!
//! Each bucket of the recording is shown by its fullest moment, so that no peak is lost however far the picture is away.

use oomph_explain::snapshot::{History, HistoryBlock};

/// Buckets of a long recording. Where a picture shows fewer events than this, the page adds up the blocks themselves.
pub const BUCKETS: usize = 8192;

/// The fullest moment of each bucket: of two equal ones the first.
pub fn moments(history: &History) -> Vec<u32> {
    let positions = history.active.len();
    let buckets = positions.min(BUCKETS);
    let bucket = |index: usize| index * positions / buckets.max(1);
    (0..buckets)
        .map(|index| {
            let within = bucket(index)..bucket(index + 1);
            let key = |position: &usize| history.active[*position];
            within.rev().max_by_key(key).unwrap_or(0) as u32
        })
        .collect()
}

/// What each of `groups` groups holds at these moments; `group` says to which one a block belongs.
pub fn levels(
    history: &History,
    moments: &[u32],
    deaths: &[u32],
    groups: usize,
    group: impl Fn(usize, &HistoryBlock) -> usize,
) -> Vec<Vec<u64>> {
    let mut now = vec![0_u64; groups];
    let mut levels = vec![Vec::with_capacity(moments.len()); groups];
    let (mut born, mut dead) = (0, 0);
    for &moment in moments {
        while let Some(block) = history.blocks.get(born).filter(|block| block.birth <= moment) {
            if let Some(sum) = now.get_mut(group(born, block)) {
                *sum = sum.saturating_add(block.requested);
            }
            born += 1;
        }
        while let Some(&index) = deaths.get(dead) {
            let Some(block) = history.blocks.get(index as usize).filter(|block| block.death <= moment) else { break };
            if let Some(sum) = now.get_mut(group(index as usize, block)) {
                *sum = sum.saturating_sub(block.requested);
            }
            dead += 1;
        }
        for (curve, &sum) in levels.iter_mut().zip(&now) {
            curve.push(sum);
        }
    }
    levels
}

/// The blocks in the order of their ends; those still live at the end are left out.
pub fn deaths(history: &History) -> Vec<u32> {
    let mut deaths: Vec<u32> =
        (0..history.blocks.len() as u32).filter(|&index| history.blocks[index as usize].death != u32::MAX).collect();
    deaths.sort_by_key(|&index| history.blocks[index as usize].death);
    deaths
}

#[cfg(test)]
mod tests {
    use oomph_explain::snapshot::{Owner, Phase};
    use oomph_trace::StackId;

    use super::*;

    fn block(birth: u32, death: u32, bytes: u64) -> HistoryBlock {
        HistoryBlock {
            address: 0,
            size: bytes,
            requested: bytes,
            stream: 0,
            birth,
            released: death,
            death,
            stack: StackId::NONE,
            line: None,
            owner: Owner::Unattributed,
            named: false,
            phase: Phase::Other,
            step: 0,
            module: None,
            name: None,
        }
    }

    #[test]
    fn the_peak_of_a_bucket_is_what_is_shown_of_it() {
        let positions = BUCKETS * 4;
        // A block of 5 is live throughout, and one of 100 for one position in each bucket of four.
        let mut blocks = vec![block(0, u32::MAX, 5)];
        let mut active = vec![5; positions];
        for bucket in 0..BUCKETS as u32 {
            let at = bucket * 4 + bucket % 4;
            blocks.push(block(at, at + 1, 100));
            active[at as usize] = 105;
        }
        blocks.sort_by_key(|block| block.birth);
        let history = History { blocks, active, ..History::default() };
        let (moments, deaths) = (moments(&history), deaths(&history));
        let levels = levels(&history, &moments, &deaths, 2, |_, block| usize::from(block.requested > 5));
        assert_eq!(levels[0], vec![5; BUCKETS]);
        assert_eq!(levels[1], vec![100; BUCKETS]);
    }
}

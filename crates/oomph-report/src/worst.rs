//! Chooses the card that decides, among several, and says what sets it apart.

use std::cmp::Reverse;

use oomph_explain::snapshot::Holding;
use oomph_gpu::size::format as size;
use serde::{Deserialize, Serialize};

use crate::device::{DeviceReport, Whose};

/// Differences up to this many bytes do not count.
const NOTICEABLE: u64 = 1 << 20;

/// The card of a job that decides whether the job fits: the one that died, or the one with the least room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorstCard {
    /// Its CUDA index.
    pub index: u32,
    /// The ranks of a distributed job that ran on it; empty where the program has none.
    pub ranks: Vec<u32>,
    /// The card that it is compared with: the one in the middle of the others, by what they hold.
    pub typical: u32,
    /// What it holds beyond that card, in bytes; negative where it holds less.
    pub difference_bytes: i64,
    /// Why it is the worst, in words that go behind its name.
    pub because: String,
}

impl WorstCard {
    /// Whether it is another than the others in more than its number: it died, it holds more or less, or it is smaller.
    #[must_use]
    pub fn differs(&self, devices: &[DeviceReport]) -> bool {
        let card = |index: u32| devices.iter().find(|device| device.index == index);
        let capacities = card(self.index).zip(card(self.typical));
        let smaller = capacities.is_some_and(|(worst, typical)| worst.capacity_bytes < typical.capacity_bytes);
        smaller || self.difference_bytes.unsigned_abs() > NOTICEABLE
    }

    /// Finds it among the cards that were used; `None` where those are fewer than two. `ranks` of it are left empty.
    #[must_use]
    pub fn of(devices: &[DeviceReport]) -> Option<Self> {
        let mut used: Vec<&DeviceReport> = devices.iter().filter(|device| device.processes > 0).collect();
        let room = |device: &DeviceReport| {
            device.capacity_bytes.map_or(i128::MAX, i128::from).saturating_sub(held(device).into())
        };
        // Of cards that are alike, the first.
        let worst = *used
            .iter()
            .min_by_key(|device| (device.oom.is_none(), room(device), Reverse(held(device)), device.index))?;
        used.retain(|device| device.index != worst.index);
        used.sort_by_key(|device| held(device));
        let typical = *used.get(used.len() / 2)?;
        let more = held(worst).abs_diff(held(typical));
        let difference = i64::try_from(more).unwrap_or(i64::MAX);
        Some(Self {
            index: worst.index,
            ranks: Vec::new(),
            typical: typical.index,
            difference_bytes: if held(worst) < held(typical) { -difference } else { difference },
            because: because(worst, typical, used.len()),
        })
    }
}

/// What a card has to hold, as far as that is known.
fn held(device: &DeviceReport) -> u64 {
    device.need().unwrap_or(device.peak).process_bytes
}

fn because(worst: &DeviceReport, typical: &DeviceReport, others: usize) -> String {
    let middle = if others > 1 { ", which is in the middle" } else { "" };
    let more = held(worst).abs_diff(held(typical));
    let mut text = if more <= NOTICEABLE {
        format!("holds as much as GPU {}{middle}", typical.index)
    } else if held(worst) < held(typical) {
        format!("holds {} less than GPU {}{middle}", size(more), typical.index)
    } else {
        let apart = worst.whose.as_ref().zip(typical.whose.as_ref());
        let what = apart.and_then(|(worst, typical)| holding(worst).beyond(&holding(typical)));
        let what = what.map_or(String::new(), |what| format!(": {what}"));
        format!("holds {} more than GPU {}{middle}{what}", size(more), typical.index)
    };
    if let (Some(small), Some(large)) = (worst.capacity_bytes, typical.capacity_bytes)
        && small < large
    {
        text += &format!("; it is the smaller card, {} against {}", size(small), size(large));
    }
    text
}

fn holding(whose: &Whose) -> Holding<'_> {
    Holding { owners: &whose.owners, by_module: &whose.by_module, by_line: &whose.by_line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Peak;

    const GIB: u64 = 1 << 30;

    fn card(index: u32, capacity: u64, held: u64) -> DeviceReport {
        DeviceReport {
            index,
            gpu: "x".into(),
            capacity_bytes: Some(capacity * GIB),
            peak: Peak { process_bytes: held * GIB, ..Peak::default() },
            oom: None,
            gpu_name: String::new(),
            like: None,
            as_device: None,
            correction: None,
            processes: u32::from(held > 0),
            needed: None,
            smallest_capacity: None,
            needed_is_minimum: false,
            peak_is_maximum: false,
            modelled: vec![],
            caught_ooms: vec![],
            whose: None,
            pool: None,
            allowed: None,
            phases: Vec::new(),
        }
    }

    #[test]
    fn the_fullest_of_equal_cards() {
        let worst = WorstCard::of(&[card(0, 80, 10), card(1, 80, 10), card(2, 80, 14), card(3, 80, 0)]).unwrap();
        assert_eq!((worst.index, worst.typical, worst.difference_bytes), (2, 1, 4 << 30));
        assert_eq!(worst.because, "holds 4.00 GiB more than GPU 1, which is in the middle");
    }

    #[test]
    fn the_smaller_of_unlike_cards_has_less_room_though_it_holds_less() {
        let worst = WorstCard::of(&[card(0, 24, 10), card(1, 12, 9)]).unwrap();
        assert_eq!((worst.index, worst.difference_bytes), (1, -(1 << 30)));
        assert_eq!(
            worst.because,
            "holds 1.00 GiB less than GPU 0; it is the smaller card, 12.00 GiB against 24.00 GiB"
        );
    }

    #[test]
    fn one_card_is_not_compared_and_equal_ones_are_equal() {
        assert_eq!(WorstCard::of(&[card(0, 24, 10), card(1, 24, 0)]), None);
        let worst = WorstCard::of(&[card(0, 24, 10), card(1, 24, 10)]).unwrap();
        assert_eq!((worst.index, worst.because.as_str()), (0, "holds as much as GPU 1"));
    }
}

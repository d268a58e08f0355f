//! The cards that this process sees.

use std::sync::atomic::{AtomicU64, Ordering};

use oomph_ledger::{DeviceDescription, MissingCard, NoteKind};

use super::Gpu;

/// How many limits of a context a program can set.
const LIMITS: usize = 7;

/// What a program changed of a card's context, beyond what every context has.
#[derive(Debug)]
pub struct Context {
    /// The limits that it set, by their numbers in `CUlimit`; 0 where it set none.
    pub limits: [AtomicU64; LIMITS],
    /// The stack of a thread that is charged, in bytes; 0 where none is.
    pub stack: AtomicU64,
    /// Streams that live.
    pub streams: AtomicU64,
    /// The most that lived at once.
    pub most_streams: AtomicU64,
}

impl Context {
    /// A context as it begins.
    pub const fn new() -> Self {
        Self {
            limits: [const { AtomicU64::new(0) }; LIMITS],
            stack: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            most_streams: AtomicU64::new(0),
        }
    }

    /// Forgets what was changed.
    pub fn forget(&self) {
        for value in self.limits.iter().chain([&self.stack, &self.streams, &self.most_streams]) {
            value.store(0, Ordering::Relaxed);
        }
    }
}

/// A card as this process sees it.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Its index in the ledger: which card of the machine it is.
    pub card: usize,
    /// What it is.
    pub description: &'static DeviceDescription,
}

impl Gpu {
    /// The cards that `CUDA_VISIBLE_DEVICES` leaves, in its order. Read once, when the program first asks.
    pub fn visible(&'static self) -> &'static [Device] {
        self.visible.get_or_init(|| {
            let cards = self.cards().iter().enumerate();
            let all: Vec<Device> = cards.map(|(card, description)| Device { card, description }).collect();
            match std::env::var("CUDA_VISIBLE_DEVICES") {
                Ok(list) => {
                    if let Some(missing) = MissingCard::of_list(&list, all.len()) {
                        self.note(NoteKind::MissingCard, &missing.text());
                    }
                    select(&all, &list)
                }
                Err(_) => all,
            }
        })
    }

    /// Leaves word that the program asked for a card that it does not have. That ends most programs, and the report names
    /// the card then.
    #[cold]
    pub fn note_missing(&'static self, ordinal: i32) {
        if let Ok(ordinal) = u32::try_from(ordinal) {
            let list = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            self.note(NoteKind::MissingCard, &MissingCard::by_ordinal(ordinal, list.as_deref()).text());
        }
    }
}

/// What CUDA makes of `CUDA_VISIBLE_DEVICES`: entries up to the first that names no card.
fn select(all: &[Device], list: &str) -> Vec<Device> {
    let mut chosen: Vec<Device> = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let device = match entry.parse::<usize>() {
            Ok(index) => all.get(index),
            Err(_) => all.iter().find(|device| {
                let uuid = uuid_text(&device.description.uuid);
                entry.len() > 4 && uuid.starts_with(entry)
            }),
        };
        match device {
            Some(device) if !chosen.iter().any(|other| other.card == device.card) => chosen.push(*device),
            _ => break,
        }
    }
    chosen
}

/// The identity as `nvidia-smi -L` prints it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_chosen_as_cuda_chooses_them() {
        let card: &'static DeviceDescription = Box::leak(Box::new(DeviceDescription::default()));
        let all: Vec<Device> = (0..3).map(|index| Device { card: index, description: card }).collect();
        let cards = |list| select(&all, list).iter().map(|device| device.card).collect::<Vec<_>>();
        assert_eq!(cards("2,0"), [2, 0]);
        assert_eq!(cards("1,7,0"), [1], "entries after an unknown one do not count");
        assert_eq!(cards(""), [0_usize; 0]);
        assert_eq!(cards("-1"), [0_usize; 0]);
    }

    #[test]
    fn an_identity_prints_as_nvidia_smi_prints_it() {
        let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(uuid_text(&uuid), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}

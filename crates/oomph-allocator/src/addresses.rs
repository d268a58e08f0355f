//! Maps by address.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map whose keys are addresses.
pub(crate) type AddressMap<V> = HashMap<u64, V, Seeded>;

/// A hash of one multiplication: a replay looks every event up, and the default hash would take a third of its time.
/// The seed is random, so that no file can be made to collide.
#[derive(Clone, Debug)]
pub(crate) struct Seeded {
    seed: u64,
    factor: u64,
}

impl Default for Seeded {
    fn default() -> Self {
        let random = RandomState::new();
        Self { seed: random.hash_one(0u8), factor: random.hash_one(1u8) | 1 }
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folding;

    fn build_hasher(&self) -> Folding {
        Folding { state: self.seed, factor: self.factor }
    }
}

pub(crate) struct Folding {
    state: u64,
    factor: u64,
}

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.state ^ value) * u128::from(self.factor);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }
}

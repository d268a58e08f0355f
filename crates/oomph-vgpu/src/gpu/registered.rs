//! The record of what nvcc's start-up code registered.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::lock::{Mutex, Rank};

/// The architectures of a fat binary: a bit for each with machine code, and one for each with PTX.
#[derive(Clone, Copy, Default)]
pub struct Architectures {
    code: [u64; 4],
    ptx: [u64; 4],
}

impl Architectures {
    /// Adds machine code or PTX for an architecture, 90 for 9.0.
    pub fn add(&mut self, arch: u32, is_code: bool) {
        let words = if is_code { &mut self.code } else { &mut self.ptx };
        if let Some(word) = words.get_mut(arch as usize / 64) {
            *word |= 1 << (arch % 64);
        }
    }

    fn has(words: &[u64; 4], arch: u32) -> bool {
        words.get(arch as usize / 64).is_some_and(|word| word >> (arch % 64) & 1 == 1)
    }

    /// Adds what another binary has.
    pub fn join(&mut self, other: &Self) {
        for (ours, theirs) in self.code.iter_mut().zip(other.code).chain(self.ptx.iter_mut().zip(other.ptx)) {
            *ours |= theirs;
        }
    }

    /// As nvcc calls them: `sm_90` is machine code, `compute_90` is PTX.
    pub fn names(&self) -> Vec<String> {
        let named = |kind: &'static str, words: [u64; 4]| {
            (0..256).filter(move |arch| Self::has(&words, *arch)).map(move |arch| format!("{kind}_{arch}"))
        };
        named("sm", self.code).chain(named("compute", self.ptx)).collect()
    }

    /// What a card would run: machine code of its major version up to its minor one, else the newest PTX that is not
    /// newer than the card.
    pub fn for_card(&self, major: u32, minor: u32) -> Option<u32> {
        let code = (0..=minor).rev().map(|minor| major * 10 + minor).find(|arch| Self::has(&self.code, *arch));
        code.or_else(|| (30..=major * 10 + minor).rev().find(|arch| Self::has(&self.ptx, *arch)))
    }
}

/// What nvcc's start-up code registered: fat binaries, and which kernel of the program is in which.
pub struct Binaries {
    /// Fat binaries, in the order of their registration.
    pub binaries: Vec<Binary>,
    /// Host functions that stand for kernels, with the index of their fat binary and the address of their name. Torch
    /// registers a hundred thousand while it loads and asks about a few, so they are sorted at the first question.
    kernels: Vec<(usize, u32, usize)>,
    sorted: bool,
    /// Where the files lie that were already reported.
    pub reported: Vec<Range<usize>>,
}

/// A fat binary, and where it lies in the program.
pub struct Binary {
    /// What it holds code for.
    pub architectures: Architectures,
    /// The address of what was registered.
    pub at: usize,
}

impl Binaries {
    /// Enters the host function of a kernel of the fat binary with an index, and the address of its name.
    pub fn add_kernel(&mut self, function: usize, binary: u32, name: usize) {
        self.kernels.push((function, binary, name));
        self.sorted = false;
    }

    /// The fat binary that a host function's kernel is in.
    pub fn binary_of(&mut self, function: *const c_void) -> Option<&Binary> {
        let (_, binary, _) = self.find(function)?;
        self.binaries.get(binary as usize)
    }

    /// A host function, the index of its fat binary, and the address of its name.
    pub fn find(&mut self, function: *const c_void) -> Option<(usize, u32, usize)> {
        if !self.sorted {
            self.kernels.sort_unstable();
            self.sorted = true;
        }
        let place = self.kernels.binary_search_by_key(&(function as usize), |(function, ..)| *function).ok()?;
        self.kernels.get(place).copied()
    }
}

/// How many places remember a kernel that was launched.
pub const REMEMBERED: usize = 1 << 12;

/// A kernel that was launched and looked at. Host functions begin at multiples of 16, so the low four bits of the address
/// hold what its launches are looked at for: a place that another thread changes never has arguments read that are not there.
pub struct Launched {
    /// The address of its host function, with what to look at in the low four bits.
    pub function: AtomicUsize,
    /// How its launches are counted.
    pub recipe: AtomicU64,
}

/// What was registered, and what is known of kernels that were launched.
pub struct Registered {
    /// What was registered.
    pub binaries: Mutex<Binaries>,
    /// Kernels that were launched and looked at, each at a place that its address says.
    pub launched: [Launched; REMEMBERED],
}

impl Registered {
    /// Nothing yet.
    pub const fn new() -> Self {
        let binaries = Binaries { binaries: Vec::new(), kernels: Vec::new(), sorted: true, reported: Vec::new() };
        Self {
            binaries: Mutex::new(Rank::Registered, binaries),
            launched: [const { Launched { function: AtomicUsize::new(0), recipe: AtomicU64::new(0) } }; REMEMBERED],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_runs_its_own_code_or_older_ptx() {
        let mut found = Architectures::default();
        for (arch, is_code) in [(75, true), (80, true), (86, true), (90, true), (90, false)] {
            found.add(arch, is_code);
        }
        assert_eq!(found.for_card(8, 9), Some(86), "code of a lower minor version runs");
        assert_eq!(found.for_card(7, 0), None, "code of a higher minor version does not");
        assert_eq!(found.for_card(12, 0), Some(90), "PTX is compiled for a newer card");
        let mut other = Architectures::default();
        other.add(100, true);
        found.join(&other);
        assert_eq!(found.names(), ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "compute_90"]);
    }
}

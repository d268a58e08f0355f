//! Memory calls that are answered as if the program's author had changed them: `oomph fix` asks what that would save
//! (see [`oomph_protocol::calls`]).
//!
//! Such a block is address space, and what the changed program would take of the card is charged for it separately.

use std::collections::BTreeMap;
use std::ffi::c_void;

use oomph_ledger::Kind;
use oomph_protocol::calls::{self, Change, Rule};

use crate::activity::Place;
use crate::device::{self, Device};
use crate::gpu::gpu;
use crate::lock::{Mutex, Rank};
use crate::memory::{self, SMALL, SMALL_ALIGNMENT};
use crate::space::GRANULE;
use crate::status::CudaStatus;

/// The changed calls of this process.
pub struct ChangedCalls(Mutex<State>);

struct State {
    /// Which process read the rules: a child of the fork server has its own.
    reader: u32,
    rules: Vec<Rule>,
    /// What the newest block of each rule is charged with, by the rule's place.
    newest: BTreeMap<usize, usize>,
    /// What each block is charged with: card and bytes, by address.
    charged: BTreeMap<usize, (usize, u64)>,
}

/// A call that is changed: what becomes of it, and the place of its rule.
#[derive(Clone, Copy)]
pub struct Changed {
    change: Change,
    rule: usize,
}

impl ChangedCalls {
    /// None yet.
    pub const fn new() -> Self {
        let state = State { reader: 0, rules: Vec::new(), newest: BTreeMap::new(), charged: BTreeMap::new() };
        Self(Mutex::new(Rank::ChangedCalls, state))
    }

    /// Whether any call of this process is changed.
    fn has_rules(&self) -> bool {
        let mut state = self.0.lock();
        let process = std::process::id();
        if state.reader != process {
            let text = std::env::var(calls::VARIABLE).unwrap_or_default();
            *state =
                State { reader: process, rules: calls::read(&text), newest: BTreeMap::new(), charged: BTreeMap::new() };
        }
        !state.rules.is_empty()
    }

    /// The change of the call that is under way, if there is one.
    pub fn of_call(&self) -> Option<Changed> {
        if !self.has_rules() {
            return None;
        }
        // Looked up without the lock: the loader may wait for other threads of the program.
        let places = gpu().activity.places_of_call();
        let state = self.0.lock();
        let matches = |rule: &Rule| {
            let is = |place: &Place| place.offset as u64 == rule.offset && same_file(&place.module, &rule.module);
            places.iter().any(is)
        };
        let rule = state.rules.iter().position(matches)?;
        Some(Changed { change: state.rules[rule].change, rule })
    }

    /// What a block that is freed was charged with: card and bytes.
    fn freed(&self, start: usize) -> Option<(usize, u64)> {
        self.0.lock().charged.remove(&start)
    }

    /// What the newest block of a rule is charged with, which the changed program frees now.
    fn let_go(&self, rule: usize) -> Option<(usize, u64)> {
        let mut state = self.0.lock();
        let start = state.newest.remove(&rule)?;
        // The program may still free it.
        let charged = state.charged.get_mut(&start)?;
        Some((charged.0, std::mem::take(&mut charged.1)))
    }

    fn add(&self, rule: usize, start: usize, charge: (usize, u64)) {
        let mut state = self.0.lock();
        state.newest.insert(rule, start);
        state.charged.insert(start, charge);
    }
}

/// Whether two names are those of one file. A script is named as it was typed, and may be read from another folder.
fn same_file(one: &str, other: &str) -> bool {
    let name = |path: &'_ str| path.rsplit('/').next().map(str::to_owned);
    one == other || one.ends_with(".py") && name(one) == name(other)
}

/// Allocates as the changed call would.
pub fn allocate(device: Device, size: usize, changed: Changed) -> Result<*mut c_void, CudaStatus> {
    let gpu = gpu();
    let wanted = match changed.change {
        Change::Managed => 0,
        Change::Newest => {
            if let Some((card, bytes)) = gpu.changed.let_go(changed.rule) {
                gpu.release(card, Kind::Malloc, bytes);
            }
            size
        }
        Change::Parts(parts) => size.div_ceil(usize::try_from(parts).unwrap_or(usize::MAX).max(1)),
    };
    let unit = if wanted <= SMALL { SMALL_ALIGNMENT } else { GRANULE };
    let bytes = wanted.checked_next_multiple_of(unit).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    if bytes > 0 && !gpu.charge(device.card, Kind::Malloc, bytes as u64) {
        gpu.log_refusal(device.card, bytes);
        return Err(CudaStatus::OUT_OF_MEMORY);
    }
    let Some(start) = memory::place(device, device::current_ordinal(), size) else {
        gpu.release(device.card, Kind::Malloc, bytes as u64);
        return Err(CudaStatus::OUT_OF_MEMORY);
    };
    gpu.changed.add(changed.rule, start as usize, (device.card, bytes as u64));
    Ok(start)
}

/// Gives back what a block was charged with that the program frees, and says whether it is such a block.
pub fn freed(start: usize) -> bool {
    let Some((card, bytes)) = gpu().changed.freed(start) else { return false };
    gpu().release(card, Kind::Malloc, bytes);
    true
}

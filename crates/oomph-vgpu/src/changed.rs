//! Memory calls that are answered as if the program's author had changed them: `oomph fix` asks what that would save
//! (see [`oomph_protocol::calls`]).
//!
//! Such a block is address space, and what the changed program would take of the card is charged for it separately.

use std::collections::BTreeMap;

use oomph_protocol::calls::{self, Change, Rule};

use crate::activity::Place;
use crate::lock::{Mutex, Rank};

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
    /// What becomes of it.
    pub change: Change,
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

    /// The change of the call that is under way, if there is one; `places` says where it comes from, the innermost first.
    pub fn of_call(&self, places: impl FnOnce() -> Vec<Place>) -> Option<Changed> {
        if !self.has_rules() {
            return None;
        }
        // Looked up without the lock: the loader may wait for other threads of the program.
        let places = places();
        let state = self.0.lock();
        let matches = |rule: &Rule| {
            let is = |place: &Place| place.offset as u64 == rule.offset && same_file(&place.module, &rule.module);
            places.iter().any(is)
        };
        let rule = state.rules.iter().position(matches)?;
        Some(Changed { change: state.rules[rule].change, rule })
    }

    /// What a block that is freed was charged with: card and bytes.
    pub fn freed(&self, start: usize) -> Option<(usize, u64)> {
        self.0.lock().charged.remove(&start)
    }

    /// What the newest block of a rule is charged with, which the changed program frees now.
    pub fn let_go(&self, Changed { rule, .. }: Changed) -> Option<(usize, u64)> {
        let mut state = self.0.lock();
        let start = state.newest.remove(&rule)?;
        // The program may still free it.
        let charged = state.charged.get_mut(&start)?;
        Some((charged.0, std::mem::take(&mut charged.1)))
    }

    /// Enters a block with what it is charged with: card and bytes.
    pub fn add(&self, Changed { rule, .. }: Changed, start: usize, charge: (usize, u64)) {
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

//! The hook's names, each given to the lifetime that it speaks of.

use std::collections::HashMap;

use super::super::explanation::Owner;
use super::super::lifetimes::{Lifetime, Position};
use super::super::names::{DeviceNames, Observation, rank};
use super::super::phases::place_to_position;
use super::super::timeline::Timeline;

/// How many blocks below an address are looked at for one that holds it.
const NEIGHBOURS: usize = 64;

/// What the hook knows of the blocks of one device.
#[derive(Default)]
pub(in super::super) struct Naming<'a> {
    blocks: HashMap<u32, &'a Observation>,
    /// For each lifetime, one more than the index of the innermost module that allocated it; empty without modules.
    module_of: Vec<u32>,
    modules: Vec<&'a str>,
    /// The calls that no other module made: where each began (the allocation that followed), and the module.
    calls: Vec<(Position, u32)>,
    /// Observations that no block matches.
    pub unmatched: usize,
}

impl<'a> Naming<'a> {
    pub fn of(timeline: &Timeline, names: &DeviceNames<'a>) -> Self {
        let mut naming = Self::default();
        let mut by_address: Vec<u32> = (0..timeline.lifetimes.len() as u32).collect();
        let lifetimes = &timeline.lifetimes;
        let key = |&index: &u32| (lifetimes[index as usize].address, lifetimes[index as usize].birth);
        by_address.sort_unstable_by_key(key);
        for &(place, observation) in &names.names {
            // Just after allocation number `place`: the tensor that was seen later lives by then.
            let at = if place <= 0 {
                0
            } else {
                place_to_position(&timeline.allocations, place - 1, timeline.end).saturating_add(1)
            };
            let upto = by_address.partition_point(|index| key(index) <= (observation.address, at));
            let holder = by_address[..upto].iter().rev().take(NEIGHBOURS).find(|&&index| {
                let block = &lifetimes[index as usize];
                block.lives_at(at)
                    && observation.address - block.address < block.size.max(1)
                    && (place >= 0 || fits_earlier(block, observation))
            });
            match holder {
                Some(&index) => {
                    naming
                        .blocks
                        .entry(index)
                        .and_modify(|known| {
                            if rank(observation) < rank(known) {
                                *known = observation;
                            }
                        })
                        .or_insert(observation);
                }
                None => naming.unmatched += 1,
            }
        }
        naming.place_modules(timeline, names);
        naming
    }

    fn place_modules(&mut self, timeline: &Timeline, names: &DeviceNames<'a>) {
        if names.modules.is_empty() {
            return;
        }
        let mut index = HashMap::<&str, u32>::new();
        let mut stack: Vec<u32> = Vec::new();
        let mut events = names.modules.iter().peekable();
        self.module_of = vec![0; timeline.lifetimes.len()];
        let mut place: i64 = 0;
        let mut recorded = timeline.allocations.iter().copied().peekable();
        for (lifetime, block) in timeline.lifetimes.iter().enumerate() {
            if block.birth == 0 {
                continue;
            }
            // Allocations number from 1; one is inside a module when the module was entered before it.
            while recorded.next_if(|&event| event < block.birth).is_some() {
                place += 1;
            }
            while let Some((_, event)) = events.next_if(|(at, _)| *at < place) {
                if let Some(name) = event.enter.as_deref() {
                    let id = *index.entry(name).or_insert_with(|| {
                        self.modules.push(name);
                        self.modules.len() as u32
                    });
                    if stack.is_empty() {
                        self.calls.push((block.birth, id));
                    }
                    stack.push(id);
                } else if let Some(id) = event.leave.as_deref().and_then(|name| index.get(name))
                    && let Some(open) = stack.iter().rposition(|entered| entered == id)
                {
                    stack.truncate(open);
                }
            }
            self.module_of[lifetime] = stack.last().copied().unwrap_or(0);
        }
    }

    /// The owner of a block, where the hook named it.
    pub fn owner(&self, lifetime: u32) -> Option<Owner> {
        self.blocks.get(&lifetime).and_then(|observation| observation.owner.owner())
    }

    /// Whether the hook named weights: then it named those of all modules, and what has no name is not a weight.
    pub fn names_parameters(&self) -> bool {
        self.blocks.values().any(|observation| observation.owner.owner() == Some(Owner::Parameters))
    }

    /// What the hook calls the tensor in a block.
    pub fn name(&self, lifetime: u32) -> Option<&'a str> {
        self.blocks.get(&lifetime).and_then(|observation| observation.name.as_deref())
    }

    /// The type of the tensor in a block.
    pub fn dtype(&self, lifetime: u32) -> Option<&'a str> {
        self.blocks.get(&lifetime).and_then(|observation| observation.dtype.as_deref())
    }

    /// The module that a block belongs to: the one whose parameter it is or belongs to, otherwise the one that made it.
    pub fn module(&self, lifetime: u32) -> Option<&'a str> {
        if let (Some(Owner::Parameters | Owner::Buffers | Owner::Gradients | Owner::OptimizerState), Some(name)) =
            (self.owner(lifetime), self.name(lifetime))
        {
            return Some(module_of_parameter(name, self.owner(lifetime)));
        }
        let id = self.module_of.get(lifetime as usize)?.checked_sub(1)?;
        self.modules.get(id as usize).copied()
    }

    /// The calls of modules that no other module made, in order: the position of the first allocation that followed, and
    /// a number for the module.
    pub fn calls(&self) -> &[(Position, u32)] {
        &self.calls
    }

    /// Whether any module was recorded.
    pub fn has_modules(&self) -> bool {
        !self.modules.is_empty()
    }
}

/// An observation of before the first recorded event is about a block that was still live then, if its size says so.
fn fits_earlier(block: &Lifetime, observation: &Observation) -> bool {
    block.birth == 0 && (block.requested == observation.size || block.size == observation.size)
}

/// `model.layers.3.mlp.up_proj.weight` belongs to `model.layers.3.mlp.up_proj`; the state of its optimizer has one more
/// part.
fn module_of_parameter(name: &str, owner: Option<Owner>) -> &str {
    let parts = if owner == Some(Owner::OptimizerState) { 2 } else { 1 };
    let mut rest = name;
    for _ in 0..parts {
        rest = rest.rsplit_once('.').map_or("", |(module, _)| module);
    }
    rest
}

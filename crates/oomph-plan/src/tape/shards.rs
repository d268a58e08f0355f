//! Parameters that are sharded over cards: each card holds a share, and gathers a unit of the model while it works.
//!
//! This follows `fully_shard` of PyTorch (FSDP2) as accelerate wraps a model: every layer is a unit, and so are the
//! embeddings and the head. A unit is gathered into one buffer, from which its parameters are copied out; the buffer of the
//! unit before lives until then. The backward pass gathers one unit ahead, and reduces the gradients of a unit in a flat
//! buffer that lives until the next unit's.

use std::cell::RefCell;

use super::{Edge, Kind, Tape, TapeOwner, Tensor};

/// The stream of what is gathered.
const GATHERING: u64 = 1;
/// The stream of what is reduced.
const REDUCING: u64 = 2;

/// How a launcher shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// Cards that share every parameter.
    pub cards: u64,
    /// Whether parameters are copied out of the buffer that was gathered, as FSDP does; DeepSpeed uses the buffer itself.
    pub copies_out: bool,
    /// Numbers that stay gathered after their use in the forward pass (DeepSpeed's `stage3_max_live_parameters`).
    pub keeps: u64,
}

/// The shards of a model on one of so many cards.
pub(super) struct Shards {
    how: Sharding,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    units: Vec<Unit>,
    /// The unit that parameters are added to.
    open: Option<usize>,
    /// The buffer of the last gather in a forward pass.
    received: Option<Tensor>,
    /// The buffer of the last reduction.
    sent: Option<Tensor>,
    /// Whether this backward pass only adds gradients up, as all but the last of an accumulation do.
    holds_back: bool,
}

/// What is gathered at once.
#[derive(Default)]
struct Unit {
    leaves: Vec<usize>,
    /// Numbers of its parameters.
    count: u64,
    /// The kind that they have while they work, and the one of this card's share.
    kinds: Option<[Kind; 2]>,
    /// Its parameters, while they are whole.
    whole: Option<Tensor>,
    /// What was gathered ahead of its use.
    ahead: Option<Tensor>,
    reduced: bool,
}

impl Tape {
    /// A tape on one of several cards that share all parameters.
    #[must_use]
    pub fn sharded(mut self, how: Sharding) -> Self {
        self.shards = (how.cards > 1).then(|| Shards { how, state: RefCell::default() });
        self
    }

    /// How many cards share the parameters; 1 where they are not sharded.
    pub fn cards(&self) -> u64 {
        self.shards.as_ref().map_or(1, |shards| shards.how.cards)
    }

    /// Makes a unit of the parameters that are made meanwhile. Returns its number, where there are units.
    pub fn unit<T>(&self, make: impl FnOnce() -> T) -> (T, Option<usize>) {
        let Some(shards) = &self.shards else { return (make(), None) };
        let number = {
            let mut state = shards.state.borrow_mut();
            state.units.push(Unit::default());
            let number = state.units.len() - 1;
            state.open = Some(number);
            number
        };
        let made = make();
        shards.state.borrow_mut().open = None;
        (made, Some(number))
    }

    /// Adds a parameter, of whose share the numbers are of this kind, to the unit that is being made.
    pub(crate) fn join_unit(&self, parameter: &Tensor, share: Kind) {
        let Some(shards) = &self.shards else { return };
        let mut state = shards.state.borrow_mut();
        let open = state.open;
        if let Some(unit) = open.and_then(|open| state.units.get_mut(open)) {
            unit.count = unit.count.saturating_add(parameter.count);
            unit.kinds = Some([parameter.kind, share]);
            if let Some(Edge::Leaf(leaf)) = parameter.edge {
                unit.leaves.push(leaf);
            }
        }
    }

    /// Gathers a unit for its forward pass.
    pub fn unshard(&self, unit: Option<usize>) {
        let (Some(shards), Some(number)) = (&self.shards, unit) else { return };
        if shards.state.borrow().units[number].whole.is_some() {
            return;
        }
        let buffer = self.on_stream(GATHERING, || self.gathered(shards, number));
        if !shards.how.copies_out {
            shards.state.borrow_mut().units[number].whole = Some(buffer);
            return;
        }
        // The buffer before this one lived until now.
        let before = shards.state.borrow_mut().received.replace(buffer);
        drop(before);
        let whole = self.gathered(shards, number);
        shards.state.borrow_mut().units[number].whole = Some(whole);
    }

    /// Gives a unit's whole parameters back, of which a share stays.
    pub fn reshard(&self, unit: Option<usize>) {
        let (Some(shards), Some(number)) = (&self.shards, unit) else { return };
        let released = {
            let mut state = shards.state.borrow_mut();
            if shards.how.keeps == 0 {
                let whole = state.units[number].whole.take();
                drop(state);
                drop(whole);
                return;
            }
            let live = |unit: &Unit| if unit.whole.is_some() { unit.count } else { 0 };
            let mut sum = state.units.iter().map(live).fold(0, u64::saturating_add);
            // What was used first is needed last in the backward pass, and goes first.
            let mut released = Vec::new();
            for unit in &mut state.units[..=number] {
                if sum > shards.how.keeps {
                    sum = sum.saturating_sub(live(unit));
                    released.extend(unit.whole.take());
                }
            }
            released
        };
        drop(released);
    }

    /// The forward pass has ended.
    pub(crate) fn end_forward(&self) {
        if let Some(shards) = &self.shards {
            let received = shards.state.borrow_mut().received.take();
            drop(received);
        }
    }

    /// Says whether gradients are reduced in the next backward pass, or added up on the card.
    pub(crate) fn hold_gradients(&self, hold: bool) {
        if let Some(shards) = &self.shards {
            shards.state.borrow_mut().holds_back = hold;
        }
    }

    /// What a unit reads: behind it, its gradients are reduced in the backward pass.
    pub(crate) fn entering(&self, unit: Option<usize>, x: &Tensor) -> Tensor {
        let (Some(_), Some(number)) = (&self.shards, unit) else { return x.clone() };
        let mut out = x.detach();
        self.record(&mut out, &[x], || {
            Box::new(move |tape, grads| {
                tape.reduce(number);
                grads
            })
        });
        out
    }

    /// What a unit gives: before its backward pass it is gathered once more, and the one behind it ahead of time.
    pub(crate) fn leaving(&self, unit: Option<usize>, x: Tensor) -> Tensor {
        let (Some(_), Some(number)) = (&self.shards, unit) else { return x };
        let mut out = x.detach();
        self.record(&mut out, &[&x], || {
            Box::new(move |tape, grads| {
                tape.gather_again(number);
                grads
            })
        });
        out
    }

    /// The backward pass has ended: what has not been reduced is now.
    pub(crate) fn end_backward(&self) {
        let Some(shards) = &self.shards else { return };
        let count = shards.state.borrow().units.len();
        for number in (0..count).rev() {
            self.reduce(number);
        }
        let sent = {
            let mut state = shards.state.borrow_mut();
            for unit in &mut state.units {
                (unit.whole, unit.ahead, unit.reduced) = (None, None, false);
            }
            state.sent.take()
        };
        drop(sent);
    }

    fn gathered(&self, shards: &Shards, number: usize) -> Tensor {
        let (count, kind) = {
            let state = shards.state.borrow();
            let unit = &state.units[number];
            (unit.count.next_multiple_of(shards.how.cards), unit.kinds.map_or(Kind::Half, |[whole, _]| whole))
        };
        self.owned(TapeOwner::Gathered, || self.empty(count, kind))
    }

    fn gather_again(&self, number: usize) {
        let Some(shards) = &self.shards else { return };
        if shards.state.borrow().units[number].whole.is_none() {
            let ahead = shards.state.borrow_mut().units[number].ahead.take();
            let buffer = ahead.unwrap_or_else(|| self.on_stream(GATHERING, || self.gathered(shards, number)));
            let whole = if shards.how.copies_out { self.gathered(shards, number) } else { buffer.clone() };
            drop(buffer);
            shards.state.borrow_mut().units[number].whole = Some(whole);
        }
        let before = number.checked_sub(1).filter(|before| {
            let unit = &shards.state.borrow().units[*before];
            unit.whole.is_none() && unit.ahead.is_none() && unit.count > 0
        });
        if let Some(before) = before {
            let ahead = self.on_stream(GATHERING, || self.gathered(shards, before));
            shards.state.borrow_mut().units[before].ahead = Some(ahead);
        }
    }

    /// Reduces the gradients of a unit: from whole ones to this card's share, in fp32.
    fn reduce(&self, number: usize) {
        let Some(shards) = &self.shards else { return };
        let (leaves, [kind, share_kind], first, holds_back, whole) = {
            let mut state = shards.state.borrow_mut();
            let holds_back = state.holds_back;
            let unit = &mut state.units[number];
            let first = !std::mem::replace(&mut unit.reduced, true);
            let kinds = unit.kinds.unwrap_or([Kind::Half; 2]);
            (unit.leaves.clone(), kinds, first, holds_back, unit.whole.take())
        };
        drop(whole);
        if !first || holds_back {
            return;
        }
        let sent = shards.state.borrow_mut().sent.take();
        drop(sent);
        let grads: Vec<(usize, Tensor)> = {
            let mut known = self.leaves.borrow_mut();
            leaves.iter().filter_map(|leaf| Some((*leaf, known[*leaf].grad.take()?))).collect()
        };
        let counts: Vec<(usize, u64)> = grads.iter().map(|(leaf, grad)| (*leaf, grad.count)).collect();
        let sum = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        if sum == 0 {
            return;
        }
        let input = self.owned(TapeOwner::Gathered, || self.empty(sum, kind));
        drop(grads);
        let cards = shards.how.cards;
        self.on_stream(REDUCING, || {
            let reduced = self.owned(TapeOwner::Gathered, || self.empty(sum.div_ceil(cards), kind));
            // The gradients of a unit are views of one tensor. DeepSpeed writes them into one that it has from the start.
            let own = if shards.how.copies_out { sum.div_ceil(cards) } else { 0 };
            let share = self.owned(TapeOwner::Gradients, || self.empty(own, share_kind));
            for (leaf, count) in counts {
                self.leaves.borrow_mut()[leaf].grad = Some(share.viewed(count.div_ceil(cards)));
            }
            drop(reduced);
        });
        shards.state.borrow_mut().sent = Some(input);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CardTraits, Memory, TapePhase};
    use super::*;

    #[test]
    fn a_unit_is_whole_only_while_it_works() {
        let memory = Memory::new(false);
        let tape = Tape::new(memory.clone(), CardTraits { capability: 90 });
        let tape = tape.sharded(Sharding { cards: 4, copies_out: true, keeps: 0 });
        let make = || {
            let share = tape.owned(TapeOwner::Weights, || tape.empty(1 << 18, Kind::Single));
            let leaf = tape.leaf(&Tensor { count: 1 << 20, kind: Kind::Half, ..share });
            tape.join_unit(&leaf, Kind::Single);
            leaf
        };
        let (weight, unit) = tape.unit(make);
        assert_eq!(memory.owners()[TapeOwner::Weights as usize], 1 << 20);
        tape.unshard(unit);
        // The buffer and what is copied out of it.
        assert_eq!(memory.owners()[TapeOwner::Gathered as usize], 2 * (2 << 20));
        tape.reshard(unit);
        tape.end_forward();
        assert_eq!(memory.owners()[TapeOwner::Gathered as usize], 0);
        memory.enter(TapePhase::Backward);
        tape.gather_again(unit.unwrap_or_default());
        assert_eq!(memory.owners()[TapeOwner::Gathered as usize], 2 << 20);
        let Some(Edge::Leaf(leaf)) = weight.edge else { unreachable!() };
        tape.keep_grad(leaf, || tape.empty(weight.count, Kind::Half));
        tape.end_backward();
        assert_eq!(memory.owners()[TapeOwner::Gathered as usize], 0);
        assert_eq!(memory.owners()[TapeOwner::Gradients as usize], 1 << 20);
    }
}

//! Skips layers that repeat: a few are executed, and their memory is counted for all.
//!
//! Where only sums of bytes are wanted, one layer of many in the middle of a network does what its neighbours do: the
//! forward pass leaves as much behind it each time, the backward pass takes that back and leaves gradients. Memory at any
//! moment within it is a line over the number of the layer, so it is highest in the first or in the last of them. The first
//! two and the last two are gone through; the others are the weight of what they hold in between.

use std::rc::Rc;

use super::{Edge, Kind, Owners, Storage, Tape, TapeOwner, Tensor};

/// What was held at a moment of a forward pass.
pub struct Mark {
    held: Owners,
    /// What of it only autocast holds: copies of weights that no backward pass needs.
    copies: Owners,
    /// What of it only a cache of keys and values holds, which ends with the forward pass.
    cached: Owners,
}

/// What follows layers that are not gone through.
pub struct Passed {
    /// What the last of them gives.
    pub hidden: Tensor,
    /// What they would have in the cache alone.
    pub cached: Vec<Rc<Storage>>,
}

/// A parameter of a layer that is not gone through, and its like in one that is.
pub struct Twin {
    /// The parameter.
    pub skipped: Tensor,
    /// Its like.
    pub walked: Tensor,
}

impl Tape {
    /// Whether a layer behind this tensor may stand for others.
    pub fn may_skip(&self, x: &Tensor) -> bool {
        self.skips && self.cards() == 1 && self.is_grad() && x.requires_grad() && !self.memory.is_followed()
    }

    /// What is held now, some of it in a cache.
    pub fn mark<'a>(&self, cached: impl Iterator<Item = &'a Tensor>) -> Mark {
        let copies = self.cast_weights.borrow();
        Mark { held: self.memory.owners(), copies: lone(copies.iter().flatten()), cached: lone(cached) }
    }

    /// What happened between two marks, and gave `x`, so many `times` more. `twins` are the parameters that would be
    /// used. Nothing where sums do not show that.
    pub fn again(&self, x: &Tensor, [before, now]: [&Mark; 2], times: u64, twins: Vec<Twin>) -> Option<Passed> {
        let copies = grown(&before.copies, &now.copies)?;
        let cached = grown(&before.cached, &now.cached)?;
        let kept = grown(&cached, &grown(&copies, &grown(&before.held, &now.held)?)?)?;
        let weigh = |owners: &Owners| -> Vec<Rc<Storage>> {
            let each = TapeOwner::ALL.into_iter().map(|owner| (owner, owners[owner as usize].saturating_mul(times)));
            each.filter(|(_, bytes)| *bytes > 0).map(|(owner, bytes)| self.memory.take(bytes, owner)).collect()
        };
        let copied = weigh(&copies);
        for (storage, twin) in copied.into_iter().zip(&twins) {
            let copy = Tensor { storage, count: 0, kind: Kind::Half, edge: None };
            self.keep_copy(&twin.skipped, copy);
        }
        let held = weigh(&kept);
        let cached = weigh(&cached);
        let mut hidden = x.detach();
        self.record(&mut hidden, &[x], || {
            Box::new(move |tape, grads| {
                drop(held);
                for Twin { skipped, walked } in twins {
                    if let (Some(Edge::Leaf(leaf)), true) = (skipped.edge, tape.has_grad(&walked)) {
                        tape.keep_grad(leaf, || tape.empty(skipped.count, skipped.kind));
                    }
                }
                grads
            })
        });
        Some(Passed { hidden, cached })
    }
}

/// Whose bytes the tensors are that nothing else holds.
fn lone<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Owners {
    let mut owners = Owners::default();
    for tensor in tensors.filter(|tensor| tensor.is_unique()) {
        let bytes = &mut owners[tensor.storage.owner() as usize];
        *bytes = bytes.saturating_add(tensor.storage.bytes());
    }
    owners
}

/// By how much each has grown; nothing where one has shrunk.
fn grown(before: &Owners, after: &Owners) -> Option<Owners> {
    let mut grown = Owners::default();
    for (grown, (before, after)) in grown.iter_mut().zip(before.iter().zip(after)) {
        *grown = after.checked_sub(*before)?;
    }
    Some(grown)
}

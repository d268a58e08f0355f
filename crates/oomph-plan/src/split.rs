//! Splits a model over cards layer by layer, as `device_map="auto"` of transformers does.
//!
//! Cards are filled in order up to an equal share of the weights and a quarter more than the largest module
//! (`get_balanced_memory` of transformers). The first card leaves room for one more module (`infer_auto_device_map` of
//! accelerate); the last one takes what is left.

use oomph_model::architecture::{Head, Transformer};

use crate::answer::{CardCost, Estimate, Term};
use crate::interval::{self, Interval};
use crate::network::{Part, Stack, Weights};
use crate::run;
use crate::tape::{Memory, Tape, TapeOwner};
use crate::workload::Workload;

/// What one card has, and what it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// What of the model it has, in words.
    pub holds: String,
    /// What it needs.
    pub estimate: Estimate,
}

/// A model over cards.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Card by card; those that are left empty are not there.
    pub shares: Vec<Share>,
    /// Layers that no card has room for, which stay in host memory.
    pub left_over: u64,
}

/// Splits a model over cards.
#[must_use]
pub fn split(shape: &Transformer, workload: &Workload, cards: &[CardCost]) -> Split {
    let (parts, left_over) = places(shape, workload, cards);
    let quantiles = interval::quantiles(&shape.family, workload.task.name());
    let parameters = oomph_model::Architecture::Transformer(Box::new(shape.clone())).parameter_count();
    let shares = parts.into_iter().zip(cards).filter(|(part, _)| holds(shape, part).is_some()).map(|(part, card)| {
        let run = run::part(shape, workload, card.traits, true, &part);
        let mut owners = run.usage.owners;
        let reserved = run.usage.reserved.unwrap_or(run.usage.allocated);
        let total = Interval::around(reserved, &quantiles);
        // The owners add up to what is expected.
        let expected = total.expected.max(run.usage.allocated);
        owners[TapeOwner::Slack as usize] = expected - run.usage.allocated;
        owners[TapeOwner::Context as usize] = card.context[1];
        let total = Interval { expected, high: total.high.max(expected), ..total };
        let estimate = Estimate {
            owners,
            total: total.plus(card.context[0], card.context[1], card.context[2]),
            phase: run.usage.phase,
            parameters,
            trained: 0,
            host_bytes: 0,
            terms: Vec::<Term>::new(),
        };
        Share { holds: holds(shape, &part).unwrap_or_default(), estimate }
    });
    Split { shares: shares.collect(), left_over }
}

/// Which part of the model lies on which card, and how many layers on none.
fn places(shape: &Transformer, workload: &Workload, cards: &[CardCost]) -> (Vec<Part>, u64) {
    let weigh = |part: &Part| weight(shape, workload, part);
    let nothing = Part { layers: 0..0, embeddings: false, norm: false, head: false };
    let embeddings = weigh(&Part { embeddings: true, ..nothing.clone() });
    let tied = shape.tied_embeddings && shape.head == Head::Language;
    let end = weigh(&Part { norm: true, head: !tied, ..nothing.clone() });
    let layers: Vec<u64> =
        (0..shape.layers).map(|index| weigh(&Part { layers: index..index + 1, ..nothing.clone() })).collect();
    let largest = layers.iter().copied().max().unwrap_or(0).max(embeddings).max(end);
    let total = layers.iter().fold(embeddings.saturating_add(end), |sum, layer| sum.saturating_add(*layer));
    let share = (total / cards.len().max(1) as u64).saturating_add(largest.saturating_mul(5) / 4);
    let free = |card: &CardCost| card.capacity.map_or(u64::MAX, |bytes| bytes.saturating_sub(card.context[1]));
    let room: Vec<u64> = cards
        .iter()
        .enumerate()
        .map(|(place, card)| if place + 1 < cards.len() { free(card).min(share) } else { free(card) })
        .collect();
    let mut parts = vec![nothing; cards.len()];
    let (mut card, mut used) = (0, 0_u64);
    let sizes = std::iter::once(embeddings).chain(layers.iter().copied()).chain([end]);
    let (mut next, mut left_over) = (0_u64, 0);
    let items = shape.layers.saturating_add(2);
    for (item, bytes) in (0..items).zip(sizes) {
        // What is still to be placed decides what the first card leaves free.
        let ahead = layers.iter().skip(next as usize).copied().max().unwrap_or(0).max(end);
        while card < cards.len() {
            let kept = if card == 0 { ahead } else { 0 };
            if used.saturating_add(bytes) <= room[card].saturating_sub(kept) {
                break;
            }
            (card, used) = (card + 1, 0);
        }
        let layer = item.checked_sub(1).filter(|layer| *layer < shape.layers);
        let Some(part) = parts.get_mut(card) else {
            left_over += u64::from(layer.is_some());
            continue;
        };
        used = used.saturating_add(bytes);
        match layer {
            Some(layer) => {
                let start = if part.layers.is_empty() { layer } else { part.layers.start };
                part.layers = start..layer + 1;
                next = layer + 1;
            }
            None if item == 0 => (part.embeddings, part.head) = (true, tied),
            None => (part.norm, part.head) = (true, part.head || !tied),
        }
    }
    (parts, left_over)
}

/// Bytes of the weights of a part.
fn weight(shape: &Transformer, workload: &Workload, part: &Part) -> u64 {
    let memory = Memory::new(false);
    let tape = Tape::new(memory.clone(), crate::tape::CardTraits { capability: 80 });
    let mut weights = Weights::new(&tape, workload);
    let _stack = Stack::part(&mut weights, shape, part);
    let _kept = weights.finish();
    memory.owners()[TapeOwner::Weights as usize]
}

/// What a part is, in words; nothing of an empty one.
fn holds(shape: &Transformer, part: &Part) -> Option<String> {
    let mut words = Vec::new();
    if part.embeddings {
        words.push("embeddings".to_owned());
    }
    match part.layers.clone() {
        layers if layers.is_empty() => {}
        layers if layers.start + 1 == layers.end => words.push(format!("layer {}", layers.start)),
        layers => words.push(format!("layers {} to {}", layers.start, layers.end - 1)),
    }
    if part.head && shape.head != Head::None {
        words.push("head".to_owned());
    }
    if words.is_empty() && part.norm {
        words.push("the last norm".to_owned());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use oomph_model::{Architecture, Library};

    use super::*;
    use crate::tape::CardTraits;
    use crate::workload::Task;

    fn cards(count: usize, capacity: u64) -> Vec<CardCost> {
        let card = CardCost { traits: CardTraits { capability: 89 }, context: [0; 3], capacity: Some(capacity) };
        vec![card; count]
    }

    #[test]
    fn layers_lie_where_transformers_puts_them() {
        let model = Library::builtin().model("llama-3-8b").unwrap();
        let Some(Architecture::Transformer(shape)) = &model.components[0].architecture else { panic!() };
        let workload = Workload { task: Task::Generate, ..Workload::default() };
        // `hf_device_map` of transformers 5.23 on two cards of 24 GB: layers 0 to 15, then the rest with the head.
        let (parts, left_over) = places(shape, &workload, &cards(2, 25_000_000_000));
        assert_eq!((parts[0].layers.clone(), parts[1].layers.clone(), left_over), (0..16, 16..32, 0));
        assert!(parts[0].embeddings && !parts[0].head && parts[1].head && parts[1].norm);
        // Two cards of 4 GB hold a part, and the rest stays with the computer.
        let (parts, left_over) = places(shape, &workload, &cards(2, 4_000_000_000));
        assert!(left_over > 10 && !parts[1].head, "{parts:?} {left_over}");
    }
}

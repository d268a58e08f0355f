//! Executes a workload on a transformer, on sizes.

use oomph_model::architecture::{Head, Transformer};

use crate::network::{Part, Stack, Trained, Weights};
use crate::tape::{CardTraits, Kind, Memory, Sharding, Tape, TapeOwner, TapePhase, Tensor, Usage, product};
use crate::workload::{Objective, Optimizer, Precision, Task, Workload};

/// Steps that are run with the allocator followed: the first makes the optimizer's state between what was cached, which
/// the second has to live with.
const STEPS: usize = 2;

/// What a run needs, and what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The memory over the run.
    pub usage: Usage,
    /// Parameters of the network, adapters not counted.
    pub parameters: u64,
    /// Parameters that are trained.
    pub trained: u64,
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of all gradients.
    pub gradients: u64,
    /// Bytes of the optimizer's state.
    pub optimizer_state: u64,
    /// Bytes that the forward pass leaves for the backward pass.
    pub saved: u64,
    /// Bytes of the largest layer's weights, which sharding gathers at once.
    pub largest: u64,
}

/// Runs a workload. With `reserved` the allocator is followed, which gives what is reserved and takes longer.
#[must_use]
pub fn transformer(shape: &Transformer, workload: &Workload, card: CardTraits, reserved: bool) -> Run {
    part(shape, workload, card, reserved, &Part::whole(shape))
}

/// The same for a card that has a part of the network.
#[must_use]
pub fn part(shape: &Transformer, workload: &Workload, card: CardTraits, reserved: bool, part: &Part) -> Run {
    let memory = Memory::new(reserved);
    let sharding = sharding(workload);
    let tape = Tape::new(memory.clone(), card).sharded(sharding);
    let shape = &judged(shape, workload);
    let mut weights = Weights::new(&tape, workload);
    let stack = Stack::part(&mut weights, shape, part);
    // A value model is loaded with the policy that it judges, and both are trained.
    let value = (workload.objective == Objective::Ppo).then(|| Stack::new(&mut weights, &scoring(shape)));
    // The vision tower of a text model lies on the card, whether or not there are images.
    let _tower = shape.vision.as_deref().filter(|_| part.embeddings).map(|tower| Stack::new(&mut weights, tower));
    if let oomph_model::architecture::Positions::Rotary(width) = shape.positions {
        weights.buffer(width / 2);
        weights.buffer(width / 2);
    }
    let (trained, _frozen, parameters) = weights.finish();
    let others = Others::new(&tape, shape, workload);
    let _kept = deepspeed(&tape, workload, &trained);
    let weight_bytes = memory.owners()[TapeOwner::Weights as usize];
    memory.reset_peaks();
    let rows = workload.batch.saturating_mul(workload.objective.sequences()).saturating_mul(workload.length);
    let _inputs = tape.owned(TapeOwner::Inputs, || {
        let tensors = if workload.task.trains() { 2 } else { 1 } + u64::from(workload.padding);
        (0..tensors).map(|_| tape.empty(rows, Kind::Long)).collect::<Vec<_>>()
    });
    let mut state = Vec::new();
    let (mut gradients, mut saved) = (0, 0);
    if workload.task.trains() {
        let forward = |tape: &Tape| {
            let loss = stack.forward(tape, workload);
            others.compare(tape, workload, &stack);
            match &value {
                Some(value) => tape.add(&loss, &value.forward(tape, workload)),
                None => loss,
            }
        };
        let generate = |tape: &Tape| {
            if workload.objective.generates() {
                tape.no_grad(|| stack.generate(tape, workload));
            }
        };
        let pass = Pass { trained: &trained, workload, forward: &forward, generate: &generate };
        (gradients, saved) = train(&tape, &pass, &mut state);
    } else {
        memory.enter(TapePhase::Forward);
        tape.no_grad(|| match workload.task {
            Task::Generate => stack.generate(&tape, workload),
            Task::Evaluate => stack.evaluate(&tape, workload),
            _ => drop(stack.forward(&tape, workload)),
        });
    }
    let count = |trained: &Trained| trained.rows.saturating_mul(trained.columns.max(1));
    Run {
        usage: memory.usage(),
        parameters,
        trained: trained.iter().map(count).fold(0, u64::saturating_add),
        weights: weight_bytes,
        gradients,
        saved,
        optimizer_state: memory.owners()[TapeOwner::OptimizerState as usize],
        largest: weight_bytes / shape.layers.max(1),
    }
}

/// The network with the head that the objective wants.
fn judged(shape: &Transformer, workload: &Workload) -> Transformer {
    match workload.objective {
        Objective::Reward => scoring(shape),
        Objective::Contrastive => Transformer { head: Head::None, ..shape.clone() },
        _ => shape.clone(),
    }
}

/// The network with one score in place of words.
fn scoring(shape: &Transformer) -> Transformer {
    Transformer { head: Head::Classes(1), ..shape.clone() }
}

/// How the parameters are sharded on the tape.
fn sharding(workload: &Workload) -> Sharding {
    let parallel = workload.parallel;
    let copies = parallel.gpus / (parallel.tensor * parallel.pipeline * parallel.sequence).max(1);
    let cards = if workload.task.trains() && parallel.zero >= 3 { copies.max(1) } else { 1 };
    Sharding { cards, copies_out: parallel.fsdp, keeps: if parallel.fsdp { 0 } else { LIVE } }
}

/// Numbers that DeepSpeed keeps gathered, and does not give back because they are used again soon
/// (`stage3_max_live_parameters`, `stage3_max_reuse_distance`).
const LIVE: u64 = 1_000_000_000;
/// Numbers of DeepSpeed's bucket of gradients (`reduce_bucket_size`), which ZeRO-3 makes at the start.
pub(crate) const BUCKET: u64 = 500_000_000;

/// What DeepSpeed's ZeRO-3 holds all the time: 16-bit shares in addition to the fp32 ones that the optimizer moves,
/// shares of gradients, and a bucket.
fn deepspeed(tape: &Tape, workload: &Workload, trained: &[Trained]) -> Vec<Tensor> {
    if tape.cards() == 1 || workload.parallel.fsdp {
        return Vec::new();
    }
    let shares = trained.iter().fold(0_u64, |sum, one| sum.saturating_add(one.share.0));
    let master = workload.precision.is_amp();
    let mut kept = vec![tape.owned(TapeOwner::Gradients, || tape.empty(shares, Kind::Half))];
    if master {
        kept.push(tape.owned(TapeOwner::Weights, || tape.empty(shares, Kind::Half)));
    }
    kept.push(tape.owned(TapeOwner::Gathered, || tape.empty(BUCKET, Kind::Half)));
    kept
}

/// Models in addition to the one that is trained, whose weights stay: a reference, and a judge of rewards.
struct Others {
    stacks: Vec<Stack>,
    workload: Workload,
    _weights: Vec<Tensor>,
}

impl Others {
    fn new(tape: &Tape, shape: &Transformer, workload: &Workload) -> Self {
        // They have the type of the policy, and what is not trained is not cast by a copy that is kept.
        let wide = matches!(workload.precision, Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16);
        let frozen = Workload {
            task: Task::Inference,
            precision: if wide && workload.task == Task::Full { Precision::Fp32 } else { Precision::Bf16 },
            ..workload.clone()
        };
        // Adapters are switched off for the reference, which takes no second model.
        let reference = matches!(workload.objective, Objective::Dpo | Objective::Ppo) && workload.task == Task::Full;
        let mut weights = Weights::new(tape, &frozen);
        let mut stacks = Vec::new();
        if reference {
            stacks.push(tape.unit(|| Stack::new(&mut weights, shape)).0);
        }
        if workload.objective == Objective::Ppo {
            stacks.push(tape.unit(|| Stack::new(&mut weights, &scoring(shape))).0);
        }
        let (_, kept, _) = weights.finish();
        Self { stacks, workload: frozen, _weights: kept }
    }

    /// What a reference says of the same samples.
    fn compare(&self, tape: &Tape, workload: &Workload, policy: &Stack) {
        if workload.objective != Objective::Dpo {
            return;
        }
        tape.no_grad(|| {
            let scores = match self.stacks.first() {
                Some(reference) => reference.scored(tape, &self.workload, false),
                None => policy.scored(tape, workload, false),
            };
            drop(scores);
        });
    }
}

/// What a step of training consists of.
pub(crate) struct Pass<'a> {
    /// What the optimizer moves.
    pub trained: &'a [Trained],
    /// How it is trained.
    pub workload: &'a Workload,
    /// From an input to a loss.
    pub forward: &'a dyn Fn(&Tape) -> Tensor,
    /// What comes before a step.
    pub generate: &'a dyn Fn(&Tape),
}

/// Trains for as many steps as it takes until no peak is new. Returns the bytes of the gradients and those that the forward
/// pass left.
pub(crate) fn train(tape: &Tape, pass: &Pass<'_>, state: &mut Vec<Tensor>) -> (u64, u64) {
    if tape.memory.is_followed() {
        let mut sizes = (0, 0);
        for _ in 0..STEPS {
            sizes = differentiate(tape, pass);
            update(tape, pass, state);
        }
        return sizes;
    }
    // The second step is the first once more, in addition to the state that the first one made.
    let sizes = differentiate(tape, pass);
    let before = tape.memory.usage();
    update(tape, pass, state);
    let made = tape.memory.owners()[TapeOwner::OptimizerState as usize];
    tape.memory.repeat_alongside(&before, TapeOwner::OptimizerState, made);
    sizes
}

/// From the input to the gradients.
fn differentiate(tape: &Tape, pass: &Pass<'_>) -> (u64, u64) {
    let Pass { workload, forward, .. } = *pass;
    let mut saved = 0;
    let micro_batches = if workload.accumulation > 1 { 2 } else { 1 };
    tape.memory.enter(TapePhase::Forward);
    tape.autocast(workload.precision.is_amp(), || (pass.generate)(tape));
    for micro_batch in 0..micro_batches {
        tape.memory.enter(TapePhase::Forward);
        tape.hold_gradients(micro_batch + 1 < micro_batches);
        let before = tape.memory.live();
        let loss = tape.autocast(workload.precision.is_amp(), || forward(tape));
        tape.end_forward();
        saved = tape.memory.live().saturating_sub(before);
        tape.memory.enter(TapePhase::Backward);
        let grad = tape.owned(TapeOwner::Temporaries, || tape.empty(1, Kind::Single));
        tape.backward(&loss, grad);
        drop(loss);
        tape.forget_graph();
        tape.end_backward();
    }
    (tape.memory.owners()[TapeOwner::Gradients as usize], saved)
}

/// From the gradients to new weights.
fn update(tape: &Tape, pass: &Pass<'_>, state: &mut Vec<Tensor>) {
    tape.memory.enter(TapePhase::Step);
    optimize(tape, pass.trained, pass.workload.optimizer, state);
    tape.zero_grad();
}

/// The optimizer's step: its state is made at the first, its temporaries live for a moment.
fn optimize(tape: &Tape, trained: &[Trained], optimizer: Optimizer, state: &mut Vec<Tensor>) {
    let with_grad: Vec<&Trained> = trained.iter().filter(|trained| tape.has_grad(&trained.tensor)).collect();
    let first = state.is_empty();
    let keep = |count: u64, kind: Kind| tape.owned(TapeOwner::OptimizerState, || tape.empty(count, kind));
    if first {
        for parameter in &with_grad {
            let (count, kind) = parameter.share;
            let matrix = parameter.columns > 0;
            match optimizer {
                Optimizer::AdamwFused | Optimizer::AdamwForeach => {
                    if optimizer == Optimizer::AdamwFused {
                        state.push(keep(1, Kind::Single));
                    }
                    state.extend([keep(count, kind), keep(count, kind)]);
                }
                Optimizer::Adamw8bit | Optimizer::PagedAdamw8bit | Optimizer::Lion8bit => {
                    let moments = if optimizer == Optimizer::Lion8bit { 1 } else { 2 };
                    for _ in 0..moments {
                        if count < 4096 || parameter.is_table {
                            state.push(keep(count, Kind::Single));
                        } else {
                            state.extend([keep(count, Kind::Byte), keep(count.div_ceil(256), Kind::Single)]);
                        }
                    }
                }
                Optimizer::Adamw4bit => {
                    for _ in 0..2 {
                        if count < 4096 {
                            state.push(keep(count, Kind::Single));
                        } else {
                            state.extend([keep(count / 2, Kind::Byte), keep(count.div_ceil(128), Kind::Single)]);
                        }
                    }
                }
                Optimizer::Adafactor => {
                    if matrix {
                        state.extend([keep(parameter.rows, Kind::Single), keep(parameter.columns, Kind::Single)]);
                    } else {
                        state.push(keep(count, Kind::Single));
                    }
                }
                Optimizer::Sgd => {}
                Optimizer::SgdMomentum | Optimizer::Lion => state.push(keep(count, kind)),
                Optimizer::Muon => {
                    let moments = if matrix && !parameter.is_table { 1 } else { 2 };
                    state.extend((0..moments).map(|_| keep(count, kind)));
                }
                Optimizer::Galore => {
                    let (short, long) = (parameter.rows.min(parameter.columns), parameter.rows.max(parameter.columns));
                    if matrix && short > 128 {
                        state.extend([long, long, short].map(|side| keep(product([128, side]), kind)));
                    } else {
                        state.extend([keep(count, kind), keep(count, kind)]);
                    }
                }
            }
        }
    }
    tape.owned(TapeOwner::Temporaries, || match optimizer {
        // `_foreach_sqrt` of the second moments is a list as large as the weights.
        Optimizer::AdamwForeach => {
            drop(with_grad.iter().map(|p| tape.empty(p.share.0, p.share.1)).collect::<Vec<_>>());
        }
        Optimizer::Adafactor => {
            for parameter in &with_grad {
                let (count, kind) = parameter.share;
                // The gradient and the weight in fp32; the squared gradient and its sum with a constant; then the update
                // made of rows and columns in place of one of them.
                let _copies =
                    (kind == Kind::Half).then(|| [tape.empty(count, Kind::Single), tape.empty(count, Kind::Single)]);
                drop([tape.empty(count, Kind::Single), tape.empty(count, Kind::Single)]);
            }
        }
        Optimizer::Muon => {
            for parameter in &with_grad {
                let _update = [0; 3].map(|_| tape.empty(parameter.share.0, Kind::Half));
            }
        }
        _ => {}
    });
}

#[cfg(test)]
mod tests {
    use oomph_model::{Architecture, Library};

    use super::*;
    use crate::workload::Precision;

    /// A run that walks every step, or spares itself the second.
    fn usage(shape: &Transformer, workload: &Workload, walked: bool) -> (Usage, [u64; 3]) {
        let memory = Memory::new(false);
        let tape = Tape::new(memory.clone(), CardTraits { capability: 89 });
        let tape = if walked { tape.walking() } else { tape };
        let mut weights = Weights::new(&tape, workload);
        let stack = Stack::new(&mut weights, shape);
        let (trained, _frozen, _) = weights.finish();
        memory.reset_peaks();
        let forward = |tape: &Tape| stack.forward(tape, workload);
        let pass = Pass { trained: &trained, workload, forward: &forward, generate: &|_| {} };
        let mut state = Vec::new();
        let mut sizes = (0, 0);
        if walked {
            for _ in 0..STEPS {
                sizes = differentiate(&tape, &pass);
                update(&tape, &pass, &mut state);
            }
        } else {
            sizes = train(&tape, &pass, &mut state);
        }
        (memory.usage(), [sizes.0, sizes.1, memory.owners()[TapeOwner::OptimizerState as usize]])
    }

    #[test]
    fn what_is_spared_is_the_same_again() {
        let plain = Workload { task: Task::Full, precision: Precision::AmpBf16, length: 256, ..Workload::default() };
        let lora = Workload { task: Task::Lora, precision: Precision::Bf16, batch: 4, ..plain.clone() };
        let qlora = Workload { task: Task::Qlora, padding: true, ..plain.clone() };
        let checkpointed = Workload { checkpointing: true, accumulation: 4, ..plain.clone() };
        let lightly = Workload { checkpointing: true, ..qlora.clone() };
        let frozen = Workload { task: Task::Freeze, optimizer: Optimizer::Sgd, ..plain.clone() };
        let factored = Workload { optimizer: Optimizer::Adafactor, precision: Precision::Bf16, ..plain.clone() };
        let eager =
            Workload { attention: crate::workload::Attention::Eager, precision: Precision::Fp32, ..plain.clone() };
        let shapes = Library::builtin().networks().filter_map(|(name, architecture)| match architecture {
            Some(Architecture::Transformer(shape)) => Some((name, shape)),
            _ => None,
        });
        let mut compared = 0;
        for (name, mut shape) in shapes {
            // Enough for some to be skipped, and the first and the last not to be like the others.
            shape.layers = shape.layers.min(9);
            if let Some(encoder) = &mut shape.encoder {
                encoder.layers = encoder.layers.min(8);
            }
            for workload in [&plain, &lora, &qlora, &checkpointed, &lightly, &frozen, &factored, &eager] {
                assert_eq!(usage(&shape, workload, false), usage(&shape, workload, true), "{name} {workload:?}");
                compared += 1;
            }
        }
        assert!(compared > 1000, "{compared}");
    }
}

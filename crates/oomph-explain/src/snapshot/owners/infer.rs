//! Owners without names: from the stack of an allocation, the phase in which it was made, and how long it lived.
//!
//! What a training step does with memory is the same everywhere: parameters are allocated while a model is built or
//! moved and live on; activations are allocated in forward and freed in backward; gradients are allocated in backward and
//! outlive it; the optimizer's state is allocated in its first step and outlives that. Where the recording ends before
//! a phase does, the sizes decide: a gradient is as large as its parameter.

use std::collections::{HashMap, HashSet};

use oomph_trace::{PoolId, SourceKind, StringId, Trace};

use super::super::explanation::{Owner, Phase};
use super::super::lifetimes::{Lifetime, NEVER, Position};
use super::super::phases::Phases;
use super::super::stacks::{Facts, Signs};
use super::super::timeline::Timeline;
use super::{Identity, Naming};

/// The sizes of the workspace that PyTorch gives each cuBLAS handle: 8 MiB and 128 KiB up to Ada, 32 MiB on Hopper and
/// later (`CUBLAS_WORKSPACE_CONFIG`, `:4096:2:16:8` and `:4096:8`).
pub(in super::super) const CUBLAS_WORKSPACES: [u64; 2] = [8_519_680, 33_554_432];

/// There is one for each handle, and there are a few handles: more blocks of that size are something else.
const MOST_WORKSPACES: usize = 4;

/// Without training, what the program lays out itself ahead of computing is weights from this size on, in bytes: a
/// prompt takes some kilobytes.
const LEAST_WEIGHT: u64 = 1 << 20;

/// A forward pass with fewer blocks than this shows nothing of what it keeps.
const FEWEST_KEPT: usize = 8;

/// In a model with fewer weights a copy of them is not distinguished from inputs.
const FEWEST_WEIGHTS: u32 = 8;

/// So many blocks, the last ones before a forward pass holds the most, show whether it keeps what it makes.
const LAST: usize = 200;

/// Names the owners of one device's blocks.
pub(in super::super) struct Inference<'a> {
    timeline: &'a Timeline<'a>,
    facts: &'a Facts,
    phases: &'a Phases,
    naming: Option<&'a Naming<'a>>,
    parameters: Sizes,
    gradients: Sizes,
    /// Whether weights have names, so that what has none is something else.
    weights_are_named: bool,
    /// The sizes that are cuBLAS workspaces in this recording.
    workspaces: Vec<u64>,
    /// The ends of the forward passes that keep most of what they make, in a recording without a backward pass.
    keeping: HashSet<Position>,
    /// What the labels of a profiler's timeline mean; empty for other recordings.
    categories: HashMap<StringId, Owner>,
}

/// The owners that `torch.profiler` names itself. It follows the tensors of autograd, and is rarely wrong.
const CATEGORIES: [(&str, Owner); 7] = [
    ("parameter", Owner::Parameters),
    ("optimizer_state", Owner::OptimizerState),
    ("input", Owner::Inputs),
    ("temporary", Owner::Temporaries),
    ("activation", Owner::Activations),
    ("gradient", Owner::Gradients),
    ("autograd_detail", Owner::Temporaries),
];

/// How sure its word is.
const PROFILERS_WORD: f64 = 0.9;

fn categories(trace: &Trace) -> HashMap<StringId, Owner> {
    if trace.source != SourceKind::Timeline {
        return HashMap::new();
    }
    let known = |(name, owner): (&str, Owner)| Some((trace.strings.find(name)?, owner));
    CATEGORIES.into_iter().filter_map(known).collect()
}

/// The forward passes (by their ends) that keep more than half of the bytes that they made last, where they hold the
/// most: only a graph does that, which is there to be followed by a backward pass.
fn keeping(timeline: &Timeline, facts: &Facts, phases: &Phases) -> HashSet<Position> {
    if phases.trains || !phases.has_stacks {
        return HashSet::new();
    }
    let mut passes = HashMap::<Position, Vec<&Lifetime>>::new();
    for block in timeline.lifetimes.iter().filter(|block| block.birth > 0) {
        let birth = phases.birth(block.birth);
        let cache = facts.get(block.stack).signs.any(Signs::KV_CACHE);
        if birth.kind == Phase::Forward && !cache {
            passes.entry(birth.end).or_default().push(block);
        }
    }
    let keeps = |blocks: &[&Lifetime]| {
        let fullest = blocks.iter().map(|block| block.birth).max_by_key(|&at| timeline.active[at as usize]);
        let Some(fullest) = fullest else { return false };
        let upto = blocks.partition_point(|block| block.birth <= fullest);
        let last = &blocks[upto.saturating_sub(LAST)..upto];
        let sum = |blocks: &mut dyn Iterator<Item = &&Lifetime>| {
            blocks.fold(0u64, |sum, block| sum.saturating_add(block.requested))
        };
        let made = sum(&mut last.iter());
        let kept = sum(&mut last.iter().filter(|block| timeline.released(block) > fullest));
        last.len() >= FEWEST_KEPT && kept > made / 2
    };
    passes.into_iter().filter(|(_, blocks)| keeps(blocks)).map(|(end, _)| end).collect()
}

/// Without stacks, a block that lives for more than this part of its step was saved for backward.
const LEAST_SAVED: u32 = 16;

/// How many blocks there are of each size.
type Sizes = HashMap<u64, u32>;

/// What the rules say of one block.
enum Guess {
    Sure(Identity),
    /// A gradient, or what backward needed for a moment.
    CutBackward,
    /// State, or what the step needed for a moment.
    CutStep,
    /// Without stacks: is live when an optimizer step begins, and not much longer.
    AtStep,
    /// Allocated by the program itself before the first step.
    Early,
    /// There before the recording, and still there after a step.
    Static,
}

impl<'a> Inference<'a> {
    pub fn new(
        trace: &Trace,
        timeline: &'a Timeline<'a>,
        facts: &'a Facts,
        phases: &'a Phases,
        naming: Option<&'a Naming<'a>>,
    ) -> Self {
        let mut inference = Self {
            timeline,
            facts,
            phases,
            naming,
            parameters: Sizes::new(),
            gradients: Sizes::new(),
            weights_are_named: naming.is_some_and(Naming::names_parameters),
            workspaces: Vec::new(),
            keeping: keeping(timeline, facts, phases),
            categories: categories(trace),
        };
        inference.workspaces = CUBLAS_WORKSPACES
            .into_iter()
            .filter(|&size| {
                timeline.lifetimes.iter().filter(|block| inference.may_be_workspace(block, size)).count()
                    <= MOST_WORKSPACES
            })
            .collect();
        let (mut parameters, mut gradients) = (Sizes::new(), HashMap::<(u32, u64), u32>::new());
        for (index, block) in timeline.lifetimes.iter().enumerate() {
            let Guess::Sure(identity) = inference.guess(index as u32, block) else { continue };
            match identity.owner {
                Owner::Parameters => *parameters.entry(block.requested).or_default() += 1,
                Owner::Gradients => {
                    let step = phases.birth(block.birth).step;
                    *gradients.entry((step, block.requested)).or_default() += 1;
                }
                _ => {}
            }
        }
        inference.parameters = parameters;
        for ((_, size), count) in gradients {
            let most = inference.gradients.entry(size).or_default();
            *most = count.max(*most);
        }
        inference
    }

    /// What a block is, where that follows from the block alone.
    pub fn alone(&self, index: u32) -> Option<Identity> {
        match self.guess(index, self.timeline.lifetimes.get(index as usize)?) {
            Guess::Sure(identity) => Some(identity),
            _ => None,
        }
    }

    /// One identity for each of these blocks, all of which live at the same moment.
    pub fn identify(&self, blocks: &[u32]) -> Vec<Identity> {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_unstable_by_key(|&at| blocks[at]);
        let mut identities = vec![Identity::UNKNOWN; blocks.len()];
        let (mut gradients, mut parameters, mut states) = (Sizes::new(), Sizes::new(), Sizes::new());
        let mut later = Vec::new();
        for &at in &order {
            let block = &self.timeline.lifetimes[blocks[at] as usize];
            match self.guess(blocks[at], block) {
                Guess::Sure(identity) => {
                    let sizes = match identity.owner {
                        Owner::Parameters => &mut parameters,
                        Owner::Gradients => &mut gradients,
                        Owner::OptimizerState => &mut states,
                        _ => &mut Sizes::new(),
                    };
                    *sizes.entry(block.requested).or_default() += 1;
                    identities[at] = identity;
                }
                guess => later.push((at, guess)),
            }
        }
        let known = |sizes: &Sizes, size: u64| sizes.get(&size).copied().unwrap_or(0);
        // An average of the weights, such as an EMA, has a block for most of them.
        let weights: u32 = self.parameters.values().sum();
        let like_a_weight = |(at, guess): &&(usize, Guess)| {
            let size = self.timeline.lifetimes[blocks[*at] as usize].requested;
            matches!(guess, Guess::Early) && self.parameters.contains_key(&size)
        };
        let copied = weights > FEWEST_WEIGHTS && later.iter().filter(like_a_weight).count() * 2 > weights as usize;
        let mut copies = Sizes::new();
        for (at, guess) in later {
            let size = self.timeline.lifetimes[blocks[at] as usize].requested;
            let trained = known(&self.gradients, size);
            let model = known(&self.parameters, size).max(trained);
            // The first of a size are what is expected of that size, as many as there can be; the rest are not.
            let claim = |taken: &mut Sizes, most: u32| {
                let taken = taken.entry(size).or_default();
                let free = *taken < most;
                *taken += u32::from(free);
                free
            };
            let steps = self.phases.next_optimizer(0).is_some();
            identities[at] = match guess {
                Guess::CutBackward if claim(&mut gradients, model) => Identity::inferred(Owner::Gradients, 0.75),
                Guess::CutStep if claim(&mut states, model.saturating_mul(2)) => {
                    Identity::inferred(Owner::OptimizerState, 0.6)
                }
                Guess::AtStep if claim(&mut gradients, model) => Identity::inferred(Owner::Gradients, 0.6),
                Guess::AtStep => Identity::inferred(Owner::Activations, 0.3),
                Guess::CutBackward | Guess::CutStep => Identity::inferred(Owner::Temporaries, 0.6),
                Guess::Early | Guess::Static if claim(&mut parameters, trained) => {
                    Identity::inferred(Owner::Parameters, 0.7)
                }
                Guess::Early if copied && claim(&mut copies, known(&self.parameters, size)) => {
                    Identity::inferred(Owner::Parameters, 0.7)
                }
                Guess::Static if steps && claim(&mut states, trained.saturating_mul(2)) => {
                    Identity::inferred(Owner::OptimizerState, 0.7)
                }
                Guess::Early if !self.phases.trains && size >= LEAST_WEIGHT => {
                    let owner = if self.weights_are_named { Owner::Temporaries } else { Owner::Parameters };
                    Identity::inferred(owner, 0.5)
                }
                Guess::Early => Identity::inferred(Owner::Inputs, 0.5),
                Guess::Static | Guess::Sure(_) => Identity::UNKNOWN,
            };
        }
        identities
    }

    fn guess(&self, index: u32, block: &Lifetime) -> Guess {
        if let Some(owner) = self.naming.and_then(|naming| naming.owner(index)) {
            return Guess::Sure(Identity { owner, confidence: 1.0, named: true });
        }
        let guess = match self.categories.get(&block.label) {
            Some(&owner) => Guess::Sure(Identity::inferred(owner, PROFILERS_WORD)),
            None => self.unnamed(block),
        };
        // Whatever is in a private pool and is not better known is the graph's.
        match guess {
            Guess::Sure(identity) if identity.confidence >= 0.8 => guess,
            _ if block.pool != PoolId::DEFAULT => Guess::Sure(Identity::inferred(Owner::GraphPools, 0.8)),
            _ => guess,
        }
    }

    fn unnamed(&self, block: &Lifetime) -> Guess {
        let sure = |owner, confidence| Guess::Sure(Identity::inferred(owner, confidence));
        let signs = self.facts.get(block.stack).signs;
        let mut birth = self.phases.birth(block.birth);
        if birth.kind == Phase::Optimizer && signs.any(Signs::CLOSURE) {
            // The loss is computed outside of the modules, which is all that is named in there.
            birth.kind = Phase::Forward;
        }
        let lasting = self.timeline.released(block) == NEVER;
        // Whether the block outlives its phase, where the recording shows it.
        let outlives = self.timeline.released(block) > birth.end;

        if signs.any(Signs::WORKSPACE) {
            return sure(Owner::Workspace, 0.95);
        }
        if signs.any(Signs::KV_CACHE) {
            return sure(Owner::KvCache, 0.85);
        }
        if signs.any(Signs::BUCKETS) && !signs.any(Signs::INPUT) {
            return if outlives || lasting { sure(Owner::Gradients, 0.9) } else { sure(Owner::Temporaries, 0.8) };
        }
        if birth.kind == Phase::BeforeRecording {
            return self.before_recording(block, signs);
        }
        if !self.phases.has_stacks {
            return self.without_stacks(block);
        }
        // In the newest versions of PyTorch (2.15 does, 2.6 does not) a workspace lives for one call only, in which nothing else is allocated.
        let one_call = block.death.saturating_sub(block.birth) <= 2;
        if CUBLAS_WORKSPACES.contains(&block.requested) && one_call {
            return sure(Owner::Workspace, 0.6);
        }
        if self.workspaces.iter().any(|&size| self.may_be_workspace(block, size))
            && !self.parameters.contains_key(&block.requested)
        {
            return sure(Owner::Workspace, 0.9);
        }
        if signs.any(Signs::LOAD) && !signs.any(Signs::FORWARD.and(Signs::STEP)) {
            return if outlives || lasting { sure(Owner::Parameters, 0.95) } else { sure(Owner::Temporaries, 0.8) };
        }
        if signs.any(Signs::OPTIMIZER) && birth.kind != Phase::Optimizer {
            return if outlives { sure(Owner::OptimizerState, 0.9) } else { sure(Owner::Temporaries, 0.7) };
        }
        match birth.kind {
            Phase::Optimizer if birth.cut && lasting => {
                if signs.any(Signs::STATE) {
                    sure(Owner::OptimizerState, 0.9)
                } else {
                    Guess::CutStep
                }
            }
            Phase::Optimizer if outlives => sure(Owner::OptimizerState, 0.95),
            Phase::Optimizer => sure(Owner::Temporaries, 0.95),
            Phase::Backward if signs.any(Signs::FORWARD.and(Signs::RECOMPUTE)) => sure(Owner::Activations, 0.8),
            Phase::Backward if birth.cut && lasting => Guess::CutBackward,
            Phase::Backward if outlives => sure(Owner::Gradients, 0.9),
            Phase::Backward => sure(Owner::Temporaries, 0.9),
            Phase::Forward | Phase::Eval | Phase::Generate => self.in_forward(block, birth.end),
            _ => self.elsewhere(block, signs, birth.end),
        }
    }

    /// Whether a block is as large as a workspace, was made in forward or backward, and stays.
    fn may_be_workspace(&self, block: &Lifetime, size: u64) -> bool {
        block.requested == size
            && self.timeline.released(block) == NEVER
            && matches!(self.phases.birth(block.birth).kind, Phase::Forward | Phase::Backward)
    }

    /// A block of the forward pass: saved for backward when it lives until backward begins.
    fn in_forward(&self, block: &Lifetime, end: Position) -> Guess {
        let sure = |owner, confidence| Guess::Sure(Identity::inferred(owner, confidence));
        let lasting = self.timeline.released(block) == NEVER;
        if self.phases.trains {
            return match self.timeline.released(block) > end {
                true => sure(Owner::Activations, 0.9),
                false if lasting => sure(Owner::Activations, 0.7),
                false => sure(Owner::Temporaries, 0.9),
            };
        }
        // Without a backward pass nothing is saved for one, unless a graph was kept.
        if self.keeping.contains(&end) { sure(Owner::Activations, 0.6) } else { sure(Owner::Temporaries, 0.6) }
    }

    /// A block that the program allocated outside of modules, autograd and optimizers.
    fn elsewhere(&self, block: &Lifetime, signs: Signs, end: Position) -> Guess {
        let sure = |owner, confidence| Guess::Sure(Identity::inferred(owner, confidence));
        if signs.any(Signs::INPUT) {
            return sure(Owner::Inputs, 0.9);
        }
        let first_step = self.phases.step_ends().first().copied().unwrap_or(self.timeline.end);
        if block.birth <= first_step && self.timeline.released(block) > first_step {
            return Guess::Early;
        }
        let next = self.phases.birth(end.saturating_add(1).min(self.timeline.end));
        match next.kind {
            Phase::Forward if self.timeline.released(block) > end => sure(Owner::Inputs, 0.7),
            Phase::Backward if self.timeline.released(block) > end => sure(Owner::Activations, 0.6),
            _ if self.timeline.released(block) == NEVER && (self.phases.trains || block.requested < LEAST_WEIGHT) => {
                sure(Owner::Inputs, 0.4)
            }
            _ => sure(Owner::Temporaries, 0.6),
        }
    }

    /// A block that was there when the recording began. A snapshot keeps the stack of what is still allocated at the
    /// end.
    fn before_recording(&self, block: &Lifetime, signs: Signs) -> Guess {
        let sure = |owner, confidence| Guess::Sure(Identity::inferred(owner, confidence));
        if signs.any(Signs::PYTHON) {
            return match () {
                () if signs.any(Signs::STEP.and(Signs::OPTIMIZER)) => sure(Owner::OptimizerState, 0.85),
                () if signs.any(Signs::BACKWARD.and(Signs::RECOMPUTE)) => sure(Owner::Gradients, 0.5),
                () if signs.any(Signs::FORWARD) && self.phases.trains => sure(Owner::Activations, 0.6),
                () if signs.any(Signs::FORWARD) => sure(Owner::Temporaries, 0.4),
                () if signs.any(Signs::LOAD) => sure(Owner::Parameters, 0.9),
                () if block.requested >= LEAST_WEIGHT => sure(Owner::Parameters, 0.4),
                () => sure(Owner::Inputs, 0.4),
            };
        }
        if signs.any(Signs::BACKWARD) {
            return sure(Owner::Gradients, 0.6);
        }
        let first_step = self.phases.step_ends().first().copied();
        if self.timeline.end == 0 && self.phases.has_stacks {
            return Guess::CutBackward;
        }
        if first_step.is_some_and(|end| self.timeline.released(block) > end) {
            Guess::Static
        } else {
            Guess::Sure(Identity::UNKNOWN)
        }
    }

    /// With marked optimizer steps alone: what outlives a step's end, what is live when a step begins.
    fn without_stacks(&self, block: &Lifetime) -> Guess {
        let sure = |owner, confidence| Guess::Sure(Identity::inferred(owner, confidence));
        let birth = self.phases.birth(block.birth);
        if !self.phases.trains {
            return Guess::Sure(Identity::UNKNOWN);
        }
        if birth.kind == Phase::Optimizer {
            return match self.timeline.released(block) > birth.end {
                true => sure(Owner::OptimizerState, 0.8),
                false if birth.cut && self.timeline.released(block) == NEVER => sure(Owner::OptimizerState, 0.5),
                false => sure(Owner::Temporaries, 0.8),
            };
        }
        let Some(step) = self.phases.next_optimizer(block.birth) else {
            return if self.timeline.released(block) == NEVER {
                Guess::CutBackward
            } else {
                sure(Owner::Temporaries, 0.4)
            };
        };
        let after = self.phases.next_optimizer(step + 1).unwrap_or(self.timeline.end);
        // What is saved for backward lives for a part of the step, a temporary for a few events of it.
        let before = self.phases.step_ends().iter().rev().find(|&&end| end <= block.birth).copied().unwrap_or(0);
        let long = step.saturating_sub(before) / LEAST_SAVED;
        match self.timeline.released(block) {
            released if released <= step && released.saturating_sub(block.birth) > long => {
                sure(Owner::Activations, 0.3)
            }
            released if released <= step => sure(Owner::Temporaries, 0.3),
            released if released > after && birth.step == 0 => sure(Owner::Parameters, 0.6),
            _ => Guess::AtStep,
        }
    }
}

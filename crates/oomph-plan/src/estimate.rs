//! Estimates what a workload on a model needs, per owner, on the fullest card that it is spread over.

use oomph_model::architecture::{Head, Transformer};

use crate::answer::{CardCost, Estimate, Term};
use crate::interval::{self, Interval, Quantiles};
use crate::known::{Known, Near};
use crate::run::{self, Run};
use crate::serve::{self, Stored};
use crate::tape::{Owners, TapeOwner, TapePhase};
use crate::workload::{Objective, Optimizer, Parallel, Precision, Task, Workload};

/// A model, as far as its memory is concerned.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// One transformer.
    Transformer {
        /// Its shape.
        shape: Box<Transformer>,
        /// Its weights as files hold them, where these decide and not the precision (GGUF, GPTQ, AWQ).
        stored: Option<Stored>,
    },
    /// A diffusion pipeline.
    Pipeline(Box<crate::pipeline::Pipeline>),
}

/// The runs that were made near a workload.
pub(crate) struct Runs {
    /// Reserved over allocated bytes of the workload that they are near to.
    pub slack: f64,
    /// Of a transformer.
    pub transformers: Known<Run>,
    /// Of a pipeline.
    pub pipelines: Known<crate::pipeline::Run>,
}

/// Says what a workload needs on one card of those that it is spread over: the fullest.
#[must_use]
pub fn estimate(subject: &Subject, workload: &Workload, card: CardCost) -> Estimate {
    estimate_near(subject, workload, card, None)
}

/// The same, for a workload that others were run near to.
pub(crate) fn estimate_near(subject: &Subject, workload: &Workload, card: CardCost, near: Option<&Runs>) -> Estimate {
    match subject {
        Subject::Transformer { shape, stored } => {
            let stored = stored.as_ref();
            match stored.filter(|stored| stored.llama_cpp.is_some() && !workload.task.trains()) {
                Some(stored) => serve::llama_cpp(shape, stored, workload, card),
                None if workload.task == Task::Serve => serve::vllm(shape, stored, workload, card),
                None => transformer(shape, stored, workload, card, near),
            }
        }
        Subject::Pipeline(pipeline) => {
            let near = near.map(|runs| Near { slack: runs.slack, runs: &runs.pipelines });
            crate::pipeline::estimate(pipeline, workload, card, near)
        }
    }
}

fn transformer(
    shape: &Transformer,
    stored: Option<&Stored>,
    workload: &Workload,
    card: CardCost,
    near: Option<&Runs>,
) -> Estimate {
    let parallel = workload.parallel;
    let sliced = sliced(shape, parallel);
    let mut spread = workload.clone();
    spread.length = workload.length.div_ceil(parallel.sequence.max(1));
    if parallel.pipeline > 1 {
        // The first stage keeps the activations of as many micro-batches as there are stages behind it (1F1B).
        spread.batch = workload.batch.saturating_mul(parallel.pipeline.min(workload.accumulation.max(1)));
    }
    let spread_out = workload.task.trains() && copies(parallel) > 1;
    // Shards of parameters are followed on the tape; what ZeRO's first stages share out is taken off afterwards.
    let followed_shards = spread_out && parallel.zero >= 3;
    let sharded = spread_out && matches!(parallel.zero, 1 | 2);
    if sharded && keeps_a_master(workload) {
        spread.precision = Precision::Bf16;
    }
    spread.parallel = if followed_shards {
        Parallel { gpus: copies(parallel), zero: parallel.zero, fsdp: parallel.fsdp, ..Parallel::default() }
    } else {
        Parallel { tensor: parallel.tensor, pipeline: parallel.pipeline, ..Parallel::default() }
    };
    let run = |reserved: bool| run::transformer(&sliced, &spread, card.traits, reserved);
    let run = near.map_or_else(|| run(true), |near| near.transformers.of(&spread, || run(false)));
    let usage = &run.usage;
    let mut owners = usage.owners;
    let reserved = usage.reserved.unwrap_or(usage.allocated);
    // What is gathered over an evaluation grows, and leaves gaps behind that PyTorch gives back when a card is full.
    let gathers = workload.task == Task::Evaluate;
    let followed = if gathers { usage.allocated } else { reserved };
    let quantiles = widths(shape, workload, followed_shards);
    // The share is that of an expectation, which the quantiles are part of already.
    let reserved =
        near.map_or(followed, |near| (usage.allocated as f64 * near.slack / quantiles.middle.max(1.0)) as u64);
    owners[TapeOwner::Slack as usize] = reserved.saturating_sub(usage.allocated);
    if sharded {
        owners = before_sharding(shape, &spread, &run);
    }
    if let Some(stored) = stored.filter(|_| !matches!(workload.task, Task::Full | Task::Freeze)) {
        // Adapters are added to weights that stay as the files have them.
        let adapters = run.trained.saturating_mul(4);
        owners[TapeOwner::Weights as usize] =
            (stored.bytes / parallel.tensor.max(1) / parallel.pipeline.max(1)).saturating_add(adapters);
    }
    let host_bytes = shard(&mut owners, &run, workload, followed_shards);
    if spread_out {
        let buffers = &mut owners[TapeOwner::Workspaces as usize];
        *buffers = buffers.saturating_add(COMMUNICATION);
    }
    owners[TapeOwner::Context as usize] = card.context[1];
    let torch: u64 =
        owners.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)).saturating_sub(card.context[1]);
    let mut total = Interval::around(torch, &quantiles).plus(card.context[0], card.context[1], card.context[2]);
    if gathers {
        total.high = total.high.max((reserved as f64 * quantiles.high) as u64 + card.context[2]);
    }
    if followed_shards && !parallel.fsdp {
        // Settings of "auto", which transformers resolves, make DeepSpeed's bucket next to nothing.
        total.low = total.low.saturating_sub(run::BUCKET * 2);
    }
    if sharded {
        // No reading supports this sum yet, so it is given room on both sides.
        total.low = total.low.min(torch / 100 * 85);
        total.high = total.high.max(torch / 100 * 125);
    }
    // The owners add up to what is expected.
    let sum = torch.saturating_add(card.context[1]);
    owners[TapeOwner::Slack as usize] =
        owners[TapeOwner::Slack as usize].saturating_add(total.expected).saturating_sub(sum.min(total.expected));
    if sum > total.expected {
        total.expected = sum;
        total.high = total.high.max(sum);
    }
    let terms = terms(shape, workload, &run, &owners);
    Estimate {
        owners,
        total,
        phase: usage.phase,
        parameters: if near.is_none() { parameters(shape, &run) } else { run.parameters },
        trained: run.trained.saturating_mul(if workload.task == Task::Full {
            parallel.tensor * parallel.pipeline
        } else {
            1
        }),
        host_bytes,
        terms,
    }
}

/// How far the sum is from the truth. Where no reading of the calibration is of the kind, the width is what the jobs of
/// `calibration/jobs` need.
fn widths(shape: &Transformer, workload: &Workload, followed_shards: bool) -> Quantiles {
    if followed_shards {
        // Gathered parameters and gradients lie on streams of their own, in gaps that are not known here.
        return Quantiles { low: 0.9, middle: 1.0, high: 1.25, ..interval::unread() };
    }
    if workload.objective != Objective::Labels || workload.task == Task::Evaluate {
        return Quantiles { low: 0.9, middle: 1.0, high: 1.15, ..interval::unread() };
    }
    interval::quantiles(&shape.family, workload.task.name())
}

/// Buffers of NCCL for the collectives of a job on eight cards, in bytes, as the virtual GPU models them.
const COMMUNICATION: u64 = 464 << 20;

/// Parameters of the whole model, whatever one card has of it.
fn parameters(shape: &Transformer, run: &Run) -> u64 {
    if !shape.exact {
        return run.parameters;
    }
    oomph_model::Architecture::Transformer(Box::new(shape.clone())).parameter_count()
}

/// What one card has of a model under tensor and pipeline parallelism: so many heads, so much of each MLP, so many layers
/// (Megatron-LM, arXiv 1909.08053 and 2104.04473).
fn sliced(shape: &Transformer, parallel: Parallel) -> Transformer {
    let mut sliced = shape.clone();
    let part = |count: u64, degree: u64| count.div_ceil(degree.max(1));
    if parallel.tensor > 1 {
        sliced.heads = part(shape.heads, parallel.tensor);
        sliced.kv_heads = part(shape.kv_heads, parallel.tensor);
        sliced.intermediate = part(shape.intermediate, parallel.tensor);
        sliced.vocabulary = part(shape.vocabulary, parallel.tensor);
        if let Some(experts) = &mut sliced.experts {
            experts.count = part(experts.count, parallel.tensor);
            experts.shared_intermediate = part(experts.shared_intermediate, parallel.tensor);
        }
    }
    sliced.layers = part(shape.layers, parallel.pipeline);
    sliced
}

/// How many cards share one copy of what is sharded.
fn copies(parallel: Parallel) -> u64 {
    (parallel.gpus / (parallel.tensor * parallel.pipeline * parallel.sequence).max(1)).max(1)
}

/// Whether mixed precision is 16-bit weights with an fp32 master copy, as DeepSpeed has it, rather than autocast over fp32
/// weights, which keeps 16-bit copies of them among the activations.
fn keeps_a_master(workload: &Workload) -> bool {
    workload.precision.is_amp() && workload.task == Task::Full
}

/// Whose bytes they are when most of what cannot be sharded is live: the loss has just been computed. Without sharding the
/// peak is often another moment, at which all gradients are there, so its owners say nothing of a sharded run.
fn before_sharding(shape: &Transformer, workload: &Workload, run: &Run) -> Owners {
    let accumulated = if workload.accumulation > 1 { run.gradients } else { 0 };
    let resting = run.weights.saturating_add(run.optimizer_state).saturating_add(accumulated);
    let forward = run.usage.phase_peaks[TapePhase::Forward as usize].saturating_sub(resting);
    let numbers = match shape.head {
        Head::Language | Head::MaskedLanguage => {
            shape.vocabulary.saturating_mul(workload.batch).saturating_mul(workload.length)
        }
        _ => 0,
    };
    // 16-bit logits and their fp32 copies in the forward pass; their gradient comes on top when the backward pass begins.
    let logits = numbers.saturating_mul(10).min(forward);
    let mut owners = Owners::default();
    owners[TapeOwner::Weights as usize] = run.weights;
    owners[TapeOwner::Gradients as usize] = run.gradients;
    owners[TapeOwner::OptimizerState as usize] = run.optimizer_state;
    owners[TapeOwner::Activations as usize] = forward - logits;
    owners[TapeOwner::Logits as usize] = logits.saturating_add(numbers.saturating_mul(2));
    // The middle of what the readings of whole models show for full training (`calibration/README.md`).
    owners[TapeOwner::Slack as usize] = forward / 12;
    owners
}

/// Bytes of an optimizer's own state in addition to an fp32 master copy, where the run had 16-bit weights.
fn moments(optimizer: Optimizer, run: &Run) -> u64 {
    match optimizer {
        // Moments have the type of the weights, and those are the master copy's.
        Optimizer::AdamwFused
        | Optimizer::AdamwForeach
        | Optimizer::Muon
        | Optimizer::Galore
        | Optimizer::SgdMomentum
        | Optimizer::Lion => run.optimizer_state.saturating_mul(2),
        // Of a type of their own, whatever the weights are.
        _ => run.optimizer_state,
    }
}

/// Takes from a card what other cards and the host hold. Returns the bytes of the host.
fn shard(owners: &mut Owners, run: &Run, workload: &Workload, followed: bool) -> u64 {
    let parallel = workload.parallel;
    let copies = copies(parallel);
    let [weights, gradients, state, workspaces] =
        [TapeOwner::Weights, TapeOwner::Gradients, TapeOwner::OptimizerState, TapeOwner::Workspaces]
            .map(|owner| owner as usize);
    let mut host = 0_u64;
    if workload.task.trains() && copies > 1 && !followed {
        if parallel.zero > 0 && keeps_a_master(workload) {
            // 16-bit weights and gradients, and an fp32 master copy with fp32 moments (ZeRO, arXiv 1910.02054).
            let trained = run.trained;
            owners[weights] = trained.saturating_mul(2);
            owners[gradients] = trained.saturating_mul(2);
            owners[state] = trained.saturating_mul(4).saturating_add(moments(workload.optimizer, run));
        }
        if parallel.zero >= 1 {
            owners[state] /= copies;
        }
        if parallel.zero >= 2 {
            owners[gradients] /= copies;
        }
        let numbers = run.trained.min(run::BUCKET);
        // Buckets of gradients: DDP keeps all of them, ZeRO one at a time.
        let buckets = if parallel.zero == 0 { run.gradients } else { numbers.saturating_mul(2) };
        owners[workspaces] = owners[workspaces].saturating_add(buckets);
    }
    if parallel.offload_optimizer {
        host = host.saturating_add(owners[state]).saturating_add(run.gradients / copies);
        owners[state] = 0;
    }
    if parallel.offload_weights {
        let kept = run.largest.saturating_mul(2).min(owners[weights]);
        host = host.saturating_add(owners[weights] - kept);
        owners[weights] = kept;
    }
    host
}

/// The sum, term by term.
fn terms(shape: &Transformer, workload: &Workload, run: &Run, owners: &Owners) -> Vec<Term> {
    let (batch, length, layers) = (workload.batch, workload.length, shape.layers);
    let checkpointed = if workload.checkpointing { ", only their inputs kept, and one layer at work" } else { "" };
    let describe = |owner: TapeOwner| -> (String, &'static str) {
        match owner {
            TapeOwner::Weights => (
                format!("{} parameters as {}, buffers, adapters and scales", run.parameters, workload.precision.name()),
                "the tensors of the architecture, each rounded up to 512 bytes (CUDACachingAllocator)",
            ),
            TapeOwner::Gradients => (
                format!("one number for each of {} trained parameters", run.trained),
                "AccumulateGrad of PyTorch: the type of the parameter",
            ),
            TapeOwner::OptimizerState => (
                format!("{} for {} trained parameters", workload.optimizer.name(), run.trained),
                "the optimizer's own state, tensor by tensor",
            ),
            TapeOwner::Activations => (
                format!("{layers} layers x {batch} x {length} tokens{checkpointed}"),
                "the code of transformers, run on sizes: what each operation saves (derivatives.yaml)",
            ),
            TapeOwner::Logits => (
                format!("{batch} x {length} tokens x {} words: copies in 16 and 32 bits", shape.vocabulary),
                "ForCausalLMLoss of transformers and cross_entropy of PyTorch",
            ),
            TapeOwner::KvCache => (
                format!(
                    "{layers} layers x 2 x {} heads x {} x {} tokens",
                    shape.kv_heads,
                    shape.head_dim,
                    length.saturating_add(workload.new_tokens)
                ),
                "DynamicCache of transformers",
            ),
            TapeOwner::Inputs => (format!("{batch} x {length} tokens and labels"), "64-bit integers"),
            TapeOwner::Temporaries => {
                ("gradients of activations on their way, temporaries of the optimizer".into(), "engine.cpp of PyTorch")
            }
            TapeOwner::Workspaces => {
                ("cuBLAS, and buffers of communication".into(), "CUDABlas of PyTorch; ZeRO, arXiv 1910.02054")
            }
            TapeOwner::Gathered => (
                format!("parameters of {} cards, while they are used here, and what is sent", workload.parallel.gpus),
                "fully_shard of PyTorch, or ZeRO-3 of DeepSpeed, unit by unit",
            ),
            TapeOwner::Slack => (
                "reserved by the allocator and not handed out at the peak".into(),
                "a replay of the run through a model of the allocator, and the calibration",
            ),
            TapeOwner::Context => ("CUDA context and modules".into(), "the catalogue of cards"),
        }
    };
    TapeOwner::ALL
        .into_iter()
        .filter(|owner| owners[*owner as usize] > 0)
        .map(|owner| {
            let (formula, source) = describe(owner);
            Term { owner, formula, source, bytes: owners[owner as usize] }
        })
        .collect()
}

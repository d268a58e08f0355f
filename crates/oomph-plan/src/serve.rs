//! Plans servers that lay out their memory once, when they start: llama.cpp and vLLM.
//!
//! Neither asks an allocator step by step, so there is nothing to execute on sizes: the sum of a few buffers is the need.
//! The formulas were read from the programs' own reports of their buffers at start (`load_tensors`, `llama_kv_cache`,
//! `llama_context: CUDA0 compute buffer size`; vLLM's "model weights take ... PyTorch activation peak memory takes").

use oomph_model::architecture::{Kind, Transformer};

use crate::answer::{CardCost, Estimate, Term};
use crate::interval::Interval;
use crate::run::{self, Run};
use crate::tape::{Owners, TapeOwner, TapePhase};
use crate::workload::{Attention, Task, Workload};

/// Weights as files hold them, where these decide and not the precision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Bytes of all tensors.
    pub bytes: u64,
    /// What they are called: `Q4_K_M`, `gptq`.
    pub format: String,
    /// Bytes of the table of tokens that llama.cpp leaves in host memory; `None` where llama.cpp does not read
    /// these files.
    pub llama_cpp: Option<u64>,
}

/// Tokens that llama.cpp computes at once (`--ubatch-size`), by default.
const MICRO_BATCH: u64 = 512;
/// llama.cpp rounds the cells of its cache up to these many tokens.
const CELLS: u64 = 256;
/// Part of the card that vLLM takes (`--gpu-memory-utilization`), by default since 0.19; 0.9 before.
const UTILIZATION: f64 = 0.92;
/// Tokens that vLLM computes at once (`--max-num-batched-tokens`), by default on cards of at least 70 GiB; its profile
/// run has as many.
const BATCHED_TOKENS_LARGE: u64 = 8192;
/// The same on smaller cards.
const BATCHED_TOKENS: u64 = 2048;
/// Sequences that vLLM runs at once (`--max-num-seqs`), by default.
const SEQUENCES: u64 = 256;
/// What vLLM's logs call `non_torch_memory` on one card: 0.05 to 0.2 GiB in those that are published.
const NON_TORCH: u64 = 128 << 20;
/// CUDA graphs of a model of some 8 B parameters, by vLLM's own log at the default capture sizes.
const GRAPHS: u64 = 512 << 20;
/// Tokens to a block of vLLM's cache.
const BLOCK: u64 = 16;

/// One part of the sum.
struct Part {
    owner: TapeOwner,
    formula: String,
    source: &'static str,
    bytes: u64,
}

/// Bytes of the keys and values of one token in one layer.
fn token_bytes(shape: &Transformer, number: f64) -> u64 {
    let numbers = match shape.latent {
        // One compressed vector and one rotated key stand for all heads.
        Some(latent) => latent.kv_rank.saturating_add(latent.rope_dim),
        None => shape.kv_width().saturating_mul(2),
    };
    (numbers as f64 * number).ceil() as u64
}

/// Layers that keep everything, and those that keep a window.
fn layers(shape: &Transformer) -> (u64, u64) {
    let windowed = if shape.sliding_window.is_some() { shape.windowed_layers.min(shape.layers) } else { 0 };
    (shape.layers - windowed, windowed)
}

/// What llama.cpp needs with all layers on the card: weights but for the table of tokens, the cache for the whole context
/// of every slot, and the buffer that its graph computes in.
pub(crate) fn llama_cpp(shape: &Transformer, stored: &Stored, workload: &Workload, card: CardCost) -> Estimate {
    let context = workload.length.saturating_add(workload.new_tokens);
    let cells = round_up(context.saturating_mul(workload.batch), CELLS);
    let micro_batch = MICRO_BATCH.min(cells).max(1);
    let table = stored.llama_cpp.unwrap_or(0);
    // A tied table is the output layer too, which the card has to hold.
    let on_host = if shape.tied_embeddings { 0 } else { table };
    let weights = stored.bytes.saturating_sub(on_host);
    let (full, windowed) = layers(shape);
    let per_token = token_bytes(shape, workload.cache_bytes);
    let window = shape.sliding_window.unwrap_or(0).saturating_mul(workload.batch).saturating_add(micro_batch);
    let window = round_up(window, CELLS).min(cells);
    let cache = per_token.saturating_mul(full.saturating_mul(cells).saturating_add(windowed.saturating_mul(window)));
    let compute = compute_buffer(shape, workload, cells, micro_batch);
    let names = if stored.format.is_empty() { String::new() } else { format!(", {}", stored.format) };
    let parts = vec![
        Part {
            owner: TapeOwner::Weights,
            formula: format!("the file's tensors{names}, without {on_host} bytes of the table of tokens"),
            source: "the header of the file; load_tensors keeps the input layer on the host",
            bytes: weights,
        },
        Part {
            owner: TapeOwner::KvCache,
            formula: format!("{full} layers x {cells} cells and {windowed} x {window}, {per_token} bytes each"),
            source: "llama_kv_cache, its cells in steps of 256",
            bytes: cache,
        },
        Part {
            owner: TapeOwner::Workspaces,
            formula: format!("the compute buffer at {micro_batch} tokens a micro-batch"),
            source: "what llama_context reports at start: logits and the last norm, or one layer's tensors",
            bytes: compute,
        },
    ];
    // Buffers are asked for whole, so there is no slack; the pool of the CUDA back end may grow by as much as a buffer.
    let torch = weights.saturating_add(cache).saturating_add(compute);
    let total = Interval {
        low: torch.saturating_sub(compute / 4),
        expected: torch,
        high: torch.saturating_add(compute).saturating_add(torch / 100),
    };
    answer(shape, parts, total, on_host, card)
}

/// llama.cpp's compute buffer on the card, in bytes. Everything in it is fp32, but for the mask of fused attention.
///
/// It is as large as the fullest moment of the graph: the logits of a micro-batch and the last norm's output
/// (258.50 MiB for 512 tokens of 128,256 words and a width of 4096, 70.50 MiB for 32,000 words), or one layer.
/// Without fused attention that is its scores, the mask and four tensors of the stream's width (560 MiB for 32 heads at
/// 8192 tokens and 296 MiB at 4096, both of width 4096; 16 MiB for 12 heads of a width of 384 at 512).
fn compute_buffer(shape: &Transformer, workload: &Workload, cells: u64, micro_batch: u64) -> u64 {
    const SINGLE: u64 = 4;
    let stream = micro_batch.saturating_mul(shape.hidden).saturating_mul(SINGLE);
    let logits = micro_batch.saturating_mul(shape.vocabulary).saturating_mul(SINGLE).saturating_add(stream);
    let scores = |number: u64| cells.saturating_mul(micro_batch).saturating_mul(number);
    let eager = workload.attention == Attention::Eager;
    let attention = if eager {
        let all_heads = scores(SINGLE).saturating_mul(shape.heads);
        all_heads.saturating_add(scores(SINGLE)).saturating_add(stream.saturating_mul(4))
    } else {
        let queries = micro_batch.saturating_mul(shape.query_width()).saturating_mul(SINGLE);
        scores(SINGLE / 2).saturating_add(queries.saturating_mul(2)).saturating_add(stream.saturating_mul(2))
    };
    let (rows, inner) = match shape.experts {
        Some(experts) => (micro_batch.saturating_mul(experts.active), experts.intermediate),
        None => (micro_batch, shape.intermediate),
    };
    // The mask lives as long as a layer needs it.
    let mask = scores(if eager { SINGLE } else { SINGLE / 2 });
    let mlp = rows.saturating_mul(inner).saturating_mul(2 * SINGLE).saturating_add(stream.saturating_mul(2));
    logits.max(attention).max(mlp.saturating_add(mask))
}

/// What vLLM needs to start with so many sequences of this length at once: weights, the activations of its profile run,
/// CUDA graphs, and the cache. It takes a part of the card whatever is needed, so the need is counted as what a card must
/// have for that part to suffice.
pub(crate) fn vllm(shape: &Transformer, stored: Option<&Stored>, workload: &Workload, card: CardCost) -> Estimate {
    let tensor = workload.parallel.tensor.max(1);
    let stages = workload.parallel.pipeline.max(1);
    let mut alone = workload.clone();
    alone.task = Task::Inference;
    (alone.batch, alone.length, alone.new_tokens) = (1, 1, 0);
    let run: Run = run::transformer(shape, &alone, card.traits, false);
    let weights = stored.map_or(run.weights, |stored| stored.bytes) / tensor / stages;
    let context = workload.length.saturating_add(workload.new_tokens);
    let large = card.capacity.is_some_and(|capacity| capacity >= 70 << 30);
    let tokens = if large { BATCHED_TOKENS_LARGE } else { BATCHED_TOKENS };
    let activations = profiled(shape, tokens, tensor);
    let blocks = round_up(context, BLOCK);
    let (full, windowed) = layers(shape);
    let window = shape.sliding_window.unwrap_or(0).saturating_add(BLOCK).min(blocks);
    // Heads are not split further than there are any.
    let heads = if shape.latent.is_some() { 1 } else { tensor.min(shape.kv_heads.max(1)) };
    let per_token = token_bytes(shape, workload.cache_bytes) / heads;
    let sequence = full.saturating_mul(blocks).saturating_add(windowed.saturating_mul(window));
    let cache = sequence.saturating_mul(per_token).saturating_mul(workload.batch) / stages;
    let fixed = NON_TORCH.saturating_add(GRAPHS);
    let sum = weights.saturating_add(activations).saturating_add(cache).saturating_add(fixed);
    let sum = sum.saturating_add(card.context[1]);
    let left_free = (sum as f64 * (1.0 / UTILIZATION - 1.0)) as u64;
    let parts = vec![
        Part {
            owner: TapeOwner::Weights,
            formula: match tensor.saturating_mul(stages) {
                1 => format!("{} parameters", run.parameters),
                cards => format!("{} parameters over {cards} cards", run.parameters),
            },
            source: "the tensors of the architecture, or of its files",
            bytes: weights,
        },
        Part {
            owner: TapeOwner::KvCache,
            formula: format!(
                "{} sequences x {context} tokens x {per_token} bytes x {} layers",
                workload.batch, shape.layers
            ),
            source: "vLLM: blocks of 16 tokens",
            bytes: cache,
        },
        Part {
            owner: TapeOwner::Activations,
            formula: format!("its profile run: {tokens} tokens at once, {SEQUENCES} sequences' logits"),
            source: "vLLM's defaults for --max-num-batched-tokens and --max-num-seqs",
            bytes: activations,
        },
        Part {
            owner: TapeOwner::Workspaces,
            formula: "CUDA graphs, and memory outside PyTorch".into(),
            source: "vLLM's own reports at start",
            bytes: fixed,
        },
        Part {
            owner: TapeOwner::Slack,
            formula: format!("what --gpu-memory-utilization {UTILIZATION} leaves free"),
            source: "vLLM's default",
            bytes: left_free,
        },
    ];
    let without_context = sum.saturating_sub(card.context[1]).saturating_add(left_free);
    // Reports of the profile run's peak differ by half and more between versions.
    let total = Interval {
        low: without_context.saturating_sub(activations / 2).saturating_sub(fixed / 2),
        expected: without_context,
        high: without_context.saturating_add(activations).saturating_add(fixed),
    };
    answer(shape, parts, total, 0, card)
}

/// Activations of vLLM's profile run, in bytes: the MLP's joined projection and its product in 16 bits with two tensors
/// of the stream's width, or the logits of all sequences in fp32 with their probabilities.
fn profiled(shape: &Transformer, tokens: u64, tensor: u64) -> u64 {
    const HALF: u64 = 2;
    let (rows, inner) = match shape.experts {
        Some(experts) => (tokens.saturating_mul(experts.active), experts.intermediate),
        None => (tokens, shape.intermediate),
    };
    let mlp = rows.saturating_mul(inner).saturating_mul(3 * HALF) / tensor;
    let stream = tokens.saturating_mul(shape.hidden).saturating_mul(2 * HALF);
    let logits = SEQUENCES.saturating_mul(shape.vocabulary).saturating_mul(4 + 4 + HALF);
    mlp.saturating_add(stream).max(logits.saturating_add(stream))
}

fn round_up(value: u64, unit: u64) -> u64 {
    value.checked_next_multiple_of(unit).unwrap_or(value)
}

fn answer(shape: &Transformer, mut parts: Vec<Part>, total: Interval, on_host: u64, card: CardCost) -> Estimate {
    parts.push(Part {
        owner: TapeOwner::Context,
        formula: "CUDA context and modules".into(),
        source: "the catalogue of cards",
        bytes: card.context[1],
    });
    let mut owners = Owners::default();
    for part in &parts {
        owners[part.owner as usize] = owners[part.owner as usize].saturating_add(part.bytes);
    }
    let whole = oomph_model::Architecture::Transformer(Box::new(shape.clone()));
    let terms = parts.into_iter().filter(|part| part.bytes > 0).map(|part| Term {
        owner: part.owner,
        formula: part.formula,
        source: part.source,
        bytes: part.bytes,
    });
    Estimate {
        owners,
        total: total.plus(card.context[0], card.context[1], card.context[2]),
        phase: TapePhase::Forward,
        parameters: whole.parameter_count(),
        trained: 0,
        host_bytes: on_host,
        terms: terms.collect(),
    }
}

/// Whether a model writes text, which is what these servers serve.
#[must_use]
pub fn serves(shape: &Transformer) -> bool {
    shape.kind == Kind::Decoder && shape.encoder.is_none()
}

#[cfg(test)]
mod tests {
    use oomph_model::{Architecture, Library, gguf::Recipe};

    use super::*;
    use crate::tape::CardTraits;

    const CARD: CardCost = CardCost { traits: CardTraits { capability: 89 }, context: [0; 3], capacity: None };

    fn shape(name: &str) -> Transformer {
        let Some(Architecture::Transformer(shape)) =
            Library::builtin().find(name).and_then(|entry| entry.architecture())
        else {
            panic!("{name} is not built in");
        };
        *shape
    }

    fn mebibytes(bytes: u64) -> f64 {
        bytes as f64 / 1_048_576.0
    }

    /// What llama.cpp printed for these models (`CUDA0 compute buffer size`), to the hundredth of a MiB.
    #[test]
    fn compute_buffers_are_those_that_llama_cpp_reports() {
        let fused = Workload { attention: Attention::Sdpa, ..Workload::default() };
        let eager = Workload { attention: Attention::Eager, ..Workload::default() };
        for (model, workload, context, reported) in [
            ("llama-3-8b", &fused, 8192, 258.50),
            ("llama-3-8b", &eager, 8192, 560.00),
            ("llama-2-7b", &fused, 512, 70.50),
            ("llama-2-7b", &fused, 4096, 70.50),
            ("llama-2-7b", &eager, 4096, 296.00),
        ] {
            let buffer = mebibytes(compute_buffer(&shape(model), workload, context, MICRO_BATCH));
            if model == "llama-2-7b" && context == 4096 && workload == &fused {
                // One layer is the fullest moment of a small vocabulary; no report supports this one.
                assert!((buffer - reported).abs() < 10.0, "{buffer}");
                continue;
            }
            assert!((buffer - reported).abs() < 0.01, "{model} at {context}: {buffer} MiB, reported {reported}");
        }
    }

    #[test]
    fn the_cache_of_llama_cpp_is_that_of_the_heads_of_keys() {
        let model = shape("llama-3.1-8b");
        let bytes = Recipe::named("Q4_K_M").unwrap().bytes(&model);
        let stored = Stored { bytes, format: "Q4_K_M".into(), llama_cpp: Some(295_479_936) };
        let workload = Workload { length: 8192, ..Workload::default() };
        let answer = llama_cpp(&model, &stored, &workload, CARD);
        // `llama_kv_cache: CUDA0 KV buffer size = 1024.00 MiB` for 8192 tokens of this model.
        assert_eq!(answer.owners[TapeOwner::KvCache as usize], 1 << 30);
        assert_eq!(answer.owners[TapeOwner::Weights as usize], bytes - 295_479_936);
        assert_eq!(answer.owners.iter().sum::<u64>(), answer.total.expected);
        let half = Workload { cache_bytes: 34.0 / 32.0, ..workload };
        let smaller = llama_cpp(&model, &stored, &half, CARD).owners[TapeOwner::KvCache as usize];
        assert_eq!(smaller, (1 << 30) / 64 * 34);
    }

    #[test]
    fn vllm_asks_for_more_of_the_card_than_it_uses() {
        let model = shape("llama-3.1-8b");
        let workload = Workload { task: Task::Serve, length: 8192, ..Workload::default() };
        let answer = vllm(&model, None, &workload, CARD);
        assert_eq!(answer.owners[TapeOwner::KvCache as usize], 1 << 30);
        assert_eq!(answer.owners.iter().sum::<u64>(), answer.total.expected);
        let slack = answer.owners[TapeOwner::Slack as usize] as f64;
        assert!((slack / answer.total.expected as f64 - 0.08).abs() < 0.001);
        let mut split = workload.clone();
        split.parallel.tensor = 2;
        let half = vllm(&model, None, &split, CARD);
        assert!(half.owners[TapeOwner::Weights as usize] * 2 <= answer.owners[TapeOwner::Weights as usize]);
        assert_eq!(half.owners[TapeOwner::KvCache as usize], 1 << 29);
    }
}

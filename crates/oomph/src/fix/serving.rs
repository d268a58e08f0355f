//! Estimates what a server of language models requests of the card, from its model's file and its own settings: who
//! owns its memory, and the longest context and the most layers that fit.

use std::collections::BTreeMap;

use oomph_edit::With8Bits;
use oomph_gpu::Gpu;
use oomph_model::architecture::Transformer;
use oomph_model::{Component, Resolver};
use oomph_plan::{Attention, CardCost, Estimate, Subject, Workload, estimate};
use oomph_plan::{TapeOwner as Planned, Task as Planning};
use oomph_remedy::rewrite::{self, Line};
use oomph_remedy::{Framework, Installed, Operation, OwnerGroup, Situation, Task};

use super::edits::Edits;
use crate::plan::subject;

/// What a context has to leave free, in bytes: what a real card may take more than the virtual one.
const LEFT_FREE: u64 = 256 << 20;

/// llama.cpp's step of a context, in tokens, and the step in which longer ones are reported.
const CELLS: u64 = 256;
const THOUSAND: u64 = 1024;

/// The share of the card that vLLM takes where it is not said.
const UTILIZATION: f64 = 0.92;

/// A program that serves a language model.
pub struct Serving {
    framework: Framework,
    settings: Settings,
    /// What is known of its memory, where its model was found.
    memory: Option<Memory>,
    /// The longest context that fits, in tokens.
    context_that_fits: Option<u64>,
    /// The same with something in 8 bits.
    context_with_8_bits: With8Bits,
}

/// What is known of a server's memory.
struct Memory {
    owners: BTreeMap<OwnerGroup, u64>,
    context: u64,
    context_that_fits: Option<u64>,
    /// Bytes of the cache for each token, of vLLM.
    bytes_per_token: Option<u64>,
    /// Layers on the card, and how many would fit.
    layers: Option<(u64, Option<u64>)>,
    /// Whether the model is a mixture of experts.
    is_mixture: bool,
}

/// What its line, or the call in a script, says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Settings {
    model: Option<String>,
    context: Option<u64>,
    /// Layers on the card.
    layers: Option<u64>,
    /// Bytes of a number in the cache.
    cache_bytes: Option<f64>,
    /// Whether attention is not fused.
    eager_attention: bool,
    sequences: Option<u64>,
    utilization: Option<f64>,
    /// Whether CUDA graphs are off.
    without_graphs: bool,
    tensor_parallel: Option<u64>,
    /// Whether its weights are quantised.
    quantized: bool,
}

impl Serving {
    /// The server that a command or a script starts. `peak_bytes` is what it needs in all, `error` what it died of.
    pub fn of(
        line: Option<&Line>,
        edits: Option<&Edits>,
        gpu: &Gpu,
        peak_bytes: u64,
        error: Option<&str>,
    ) -> Option<Self> {
        let (framework, settings) = of_line(line).or_else(|| of_script(edits))?;
        let memory = memory(framework, &settings, gpu, peak_bytes);
        // What the server itself has measured is better than what is planned.
        let said = error.map(oomph_explain::log::explain_text);
        let said = said.and_then(|said| said.failures.iter().find_map(|failure| failure.facts.context_tokens_that_fit));
        let context = memory.as_ref().map(|memory| memory.context).or(settings.context);
        let said = said.zip(context).and_then(|(said, context)| longest(context, CELLS, |tokens| tokens <= said));
        let context_that_fits = said.or_else(|| memory.as_ref()?.context_that_fits);
        let context_with_8_bits = context_that_fits
            .zip(memory.as_ref())
            .map(|(fits, memory)| memory.context_with_8_bits(&settings, fits))
            .unwrap_or_default();
        Some(Self { framework, settings, memory, context_that_fits, context_with_8_bits })
    }

    /// Puts what is known into the question that the catalogue answers.
    pub fn describe(&self, situation: &mut Situation) {
        situation.frameworks.retain(|known| known.framework != self.framework);
        let installed = Installed::from(self.framework);
        if situation.task == Some(Task::Training) {
            // A loop of reinforcement learning has both on its card, and its own code is what can be changed most.
            situation.frameworks.push(installed);
        } else {
            situation.task = Some(Task::Inference);
            situation.frameworks.insert(0, installed);
        }
        let settings = &mut situation.settings;
        let share = (self.framework == Framework::Vllm).then_some(UTILIZATION);
        settings.memory_utilization = self.settings.utilization.or(share).or(settings.memory_utilization);
        settings.concurrent_sequences = self.settings.sequences.or(settings.concurrent_sequences);
        settings.context_that_fits = self.context_that_fits;
        settings.context_length = self.settings.context;
        let Some(memory) = &self.memory else { return };
        settings.context_length = Some(memory.context);
        settings.is_mixture = Some(memory.is_mixture);
        settings.gpu_layers = memory.layers.map(|(layers, _)| layers);
        settings.layers_that_fit = memory.layers.and_then(|(_, fit)| fit);
        situation.owners = Some(memory.owners.clone());
    }

    /// The moments in which it may run out.
    pub fn moments(&self) -> Vec<Operation> {
        let mut moments = vec![Operation::Load, Operation::KvCacheInit, Operation::Generation];
        if self.framework == Framework::Vllm && !self.settings.without_graphs {
            moments.push(Operation::GraphCapture);
        }
        if self.settings.eager_attention {
            moments.push(Operation::AttentionScores);
        }
        moments
    }

    /// The longest context that fits, in tokens.
    pub fn context_that_fits(&self) -> Option<u64> {
        self.context_that_fits
    }

    /// The longest context that fits with something in 8 bits.
    pub fn context_with_8_bits(&self) -> With8Bits {
        self.context_with_8_bits
    }

    /// The most layers that fit.
    pub fn layers_that_fit(&self) -> Option<u64> {
        self.memory.as_ref()?.layers?.1
    }
}

impl Memory {
    /// The longest context that fits with something in 8 bits, where `fits` tokens do without; of what is so already nothing
    /// is said.
    fn context_with_8_bits(&self, settings: &Settings, fits: u64) -> With8Bits {
        let longest = |tokens: u64| longest(self.context, CELLS, |context| context <= tokens);
        let weights = self.owners.get(&OwnerGroup::Parameters).copied().unwrap_or(0);
        // Embeddings and the head stay as they are, and so do scales.
        let more = self.bytes_per_token.filter(|&bytes| bytes > 0).map(|bytes| weights * 2 / 5 / bytes);
        With8Bits {
            cache: longest(fits.saturating_mul(2)).filter(|_| settings.cache_bytes.is_none()),
            weights: more.and_then(|more| longest(fits.saturating_add(more))).filter(|_| !settings.quantized),
        }
    }
}

fn of_line(line: Option<&Line>) -> Option<(Framework, Settings)> {
    let line = line?;
    let framework = rewrite::program(line)?.framework;
    let value = |name: &str| rewrite::argument(line, name).flatten();
    let given = |name: &str| rewrite::argument(line, name).is_some();
    let number = |name: &str| value(name)?.parse::<u64>().ok();
    let settings = match framework {
        Framework::LlamaCpp => Settings {
            model: value("-m"),
            context: number("-c").filter(|&context| context > 0),
            layers: number("-ngl"),
            cache_bytes: cache_bytes(value("-ctk").as_deref(), value("-ctv").as_deref()),
            eager_attention: value("-fa").is_some_and(|word| matches!(word.as_str(), "off" | "0" | "false")),
            ..Settings::default()
        },
        Framework::Vllm => Settings {
            model: rewrite::operand(line).or_else(|| value("--model")),
            context: number("--max-model-len"),
            sequences: number("--max-num-seqs"),
            utilization: value("--gpu-memory-utilization").and_then(|share| share.parse().ok()),
            cache_bytes: value("--kv-cache-dtype").and_then(|kind| kind.starts_with("fp8").then_some(1.0)),
            without_graphs: given("--enforce-eager"),
            tensor_parallel: number("--tensor-parallel-size"),
            quantized: given("--quantization"),
            ..Settings::default()
        },
        _ => return None,
    };
    Some((framework, settings))
}

fn of_script(edits: Option<&Edits>) -> Option<(Framework, Settings)> {
    let (library, values) = edits?.program.served()?;
    let text = |name: &str| values.get(name).cloned();
    let number = |name: &str| text(name)?.replace('_', "").parse::<u64>().ok();
    let is_on = |name: &str| text(name).is_some_and(|value| value == "True");
    Some(match library {
        "vllm" => {
            let settings = Settings {
                model: text("model"),
                context: number("max_model_len"),
                sequences: number("max_num_seqs"),
                utilization: text("gpu_memory_utilization").and_then(|share| share.parse().ok()),
                cache_bytes: text("kv_cache_dtype").and_then(|kind| kind.starts_with("fp8").then_some(1.0)),
                without_graphs: is_on("enforce_eager"),
                tensor_parallel: number("tensor_parallel_size"),
                quantized: values.contains_key("quantization"),
                ..Settings::default()
            };
            (Framework::Vllm, settings)
        }
        _ => {
            let of_8_bits = |name: &str| text(name).is_some_and(|kind| kind == "8");
            let settings = Settings {
                model: text("model_path").or_else(|| text("model")),
                context: number("n_ctx"),
                // -1 means all of them, and no value means none.
                layers: text("n_gpu_layers").map(|layers| layers.parse().unwrap_or(u64::MAX)),
                cache_bytes: (of_8_bits("type_k") && of_8_bits("type_v")).then_some(34.0 / 32.0),
                ..Settings::default()
            };
            (Framework::LlamaCpp, settings)
        }
    })
}

/// Bytes of a number in llama.cpp's cache, of keys and values together; `None` where nothing is said.
fn cache_bytes(keys: Option<&str>, values: Option<&str>) -> Option<f64> {
    let bytes = |kind: Option<&str>| match kind {
        None | Some("f16" | "bf16") => Some(2.0),
        Some("f32") => Some(4.0),
        Some("q8_0") => Some(34.0 / 32.0),
        Some("q5_1") => Some(24.0 / 32.0),
        Some("q5_0") => Some(22.0 / 32.0),
        Some("q4_1") => Some(20.0 / 32.0),
        Some("q4_0" | "iq4_nl") => Some(18.0 / 32.0),
        Some(_) => None,
    };
    keys.or(values)?;
    Some((bytes(keys)? + bytes(values)?) / 2.0)
}

/// The memory of a server whose model is here; nothing where it is not, for a server is no reason to ask a network.
fn memory(framework: Framework, settings: &Settings, gpu: &Gpu, peak_bytes: u64) -> Option<Memory> {
    let name = settings.model.as_deref()?;
    let model = Resolver::offline().resolve(name).ok()?;
    let found = subject::find(name, true).ok()?;
    let Subject::Transformer { shape, stored } = &found.subject else { return None };
    if !oomph_plan::serves(shape) || (framework == Framework::LlamaCpp) != stored.as_ref().is_some_and(is_gguf) {
        return None;
    }
    let part = model.components.first()?;
    let context = settings.context.or_else(|| trained_context(part))?;
    let card = CardCost::of(gpu);
    let planned = |context: u64| {
        let mut workload = Workload {
            task: if framework == Framework::Vllm { Planning::Serve } else { Planning::Inference },
            length: context,
            cache_bytes: settings.cache_bytes.unwrap_or(2.0),
            attention: if settings.eager_attention { Attention::Eager } else { Attention::Sdpa },
            ..Workload::default()
        };
        workload.parallel.tensor = settings.tensor_parallel.unwrap_or(1);
        estimate(&found.subject, &workload, card)
    };
    match framework {
        Framework::LlamaCpp => llama_cpp(settings, (shape, part), gpu, peak_bytes, context, &planned),
        _ => vllm(settings, shape.experts.is_some(), gpu, context, &planned),
    }
}

fn is_gguf(stored: &oomph_plan::Stored) -> bool {
    stored.llama_cpp.is_some()
}

/// The longest context that a model was made for.
fn trained_context(part: &Component) -> Option<u64> {
    let config = part.config.as_object()?;
    let named = |(name, value): (&String, &serde_json::Value)| {
        (name == "max_position_embeddings" || name.ends_with(".context_length")).then(|| value.as_u64()).flatten()
    };
    config.iter().find_map(named)
}

/// What llama.cpp puts on the card: its last layers, their cache, and the buffer that it computes in.
fn llama_cpp(
    settings: &Settings,
    (shape, part): (&Transformer, &Component),
    gpu: &Gpu,
    peak_bytes: u64,
    context: u64,
    planned: &dyn Fn(u64) -> Estimate,
) -> Option<Memory> {
    // The output layer counts as one, and comes first.
    let all = shape.layers.saturating_add(1);
    // Where nothing is said, llama.cpp finds the number itself.
    let layers = settings.layers.unwrap_or(all).min(all);
    let of_layer = |layer: u64| {
        let prefix = format!("blk.{layer}.");
        part.tensors.iter().filter(|tensor| tensor.name.starts_with(&prefix)).map(|tensor| tensor.bytes).sum::<u64>()
    };
    let weights = |layers: u64, all_weights: u64| {
        let left_out: u64 = (0..all.saturating_sub(layers.max(1))).map(of_layer).sum();
        if layers == 0 { 0 } else { all_weights.saturating_sub(left_out) }
    };
    let needs = |context: u64, layers: u64| {
        let plan = planned(context);
        let of = |owner: Planned| plan.owners.get(owner as usize).copied().unwrap_or(0);
        let share = layers.saturating_sub(1) as f64 / shape.layers.max(1) as f64;
        [
            (OwnerGroup::Parameters, weights(layers, of(Planned::Weights))),
            (OwnerGroup::KvCache, (of(Planned::KvCache) as f64 * share) as u64),
            (OwnerGroup::Temporaries, of(Planned::Workspaces)),
            (OwnerGroup::Context, of(Planned::Context)),
        ]
    };
    let sum = |context: u64, layers: u64| needs(context, layers).iter().map(|(_, bytes)| bytes).sum::<u64>();
    // What was measured and not foretold is there in any case.
    let rest = peak_bytes.saturating_sub(sum(context, layers));
    let room = gpu.capacity_bytes.saturating_sub(LEFT_FREE).saturating_sub(rest);
    let fits = |context: u64| sum(context, layers) <= room;
    Some(Memory {
        owners: needs(context, layers).into_iter().collect(),
        context,
        context_that_fits: longest(context, CELLS, fits),
        bytes_per_token: None,
        is_mixture: shape.experts.is_some(),
        layers: Some((layers, (1..layers).rev().find(|&fewer| sum(context, fewer) <= room))),
    })
}

/// What vLLM has for its cache: its share of the card, less what else it needs.
fn vllm(
    settings: &Settings,
    is_mixture: bool,
    gpu: &Gpu,
    context: u64,
    planned: &dyn Fn(u64) -> Estimate,
) -> Option<Memory> {
    let share = settings.utilization.unwrap_or(UTILIZATION);
    let budget = (gpu.capacity_bytes as f64 * share) as u64;
    let plan = planned(context);
    let of = |plan: &Estimate, owner: Planned| plan.owners.get(owner as usize).copied().unwrap_or(0);
    let outside_cache = [Planned::Weights, Planned::Activations, Planned::Workspaces, Planned::Context];
    let outside_cache: u64 = outside_cache.into_iter().map(|owner| of(&plan, owner)).sum();
    let left = budget.saturating_sub(outside_cache);
    let owners = [
        (OwnerGroup::Parameters, of(&plan, Planned::Weights)),
        (OwnerGroup::KvCache, of(&plan, Planned::KvCache).max(left)),
        (OwnerGroup::Activations, of(&plan, Planned::Activations)),
        (OwnerGroup::GraphPools, if settings.without_graphs { 0 } else { of(&plan, Planned::Workspaces) }),
        (OwnerGroup::Context, of(&plan, Planned::Context)),
    ];
    let fits = |context: u64| of(&planned(context), Planned::KvCache) <= left;
    Some(Memory {
        owners: owners.into_iter().collect(),
        context,
        context_that_fits: longest(context, CELLS, fits),
        bytes_per_token: of(&plan, Planned::KvCache).checked_div(context),
        layers: None,
        is_mixture,
    })
}

/// The longest context below this one that fits, in whole thousands where it has some of them.
fn longest(context: u64, step: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, context / step);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle * step) { low = middle } else { high = middle - 1 }
    }
    let found = low * step;
    let found = if found >= 4 * THOUSAND { found / THOUSAND * THOUSAND } else { found };
    (found > 0 && found < context).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::new(text.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn settings_are_read_from_lines() {
        let of = |text: &str| of_line(Some(&line(text)));
        let (framework, settings) =
            of("llama-server -m a.gguf -ngl 99 --ctx-size 8192 -ctk q8_0 -ctv q8_0 -fa off").unwrap();
        assert_eq!(framework, Framework::LlamaCpp);
        assert_eq!((settings.context, settings.layers), (Some(8192), Some(99)));
        assert_eq!(settings.cache_bytes, Some(34.0 / 32.0));
        assert!(settings.eager_attention);
        let (framework, settings) = of("vllm serve a/b --max-model-len=4096 --enforce-eager -tp 2").unwrap();
        assert_eq!((framework, settings.model.as_deref()), (Framework::Vllm, Some("a/b")));
        assert_eq!((settings.context, settings.tensor_parallel), (Some(4096), Some(2)));
        assert!(settings.without_graphs);
        assert!(of("python train.py --max-model-len 3").is_none());
    }

    #[test]
    fn eight_bits_make_room_for_a_longer_context() {
        const GIB: u64 = 1 << 30;
        let memory = |bytes_per_token| Memory {
            owners: [(OwnerGroup::Parameters, 10 * GIB)].into(),
            context: 128 * THOUSAND,
            context_that_fits: None,
            bytes_per_token,
            layers: None,
            is_mixture: false,
        };
        // 4 GiB of weights less are 32,768 tokens of 128 KiB.
        let known = memory(Some(128 * 1024)).context_with_8_bits(&Settings::default(), 32 * THOUSAND);
        assert_eq!(known, With8Bits { cache: Some(64 * THOUSAND), weights: Some(64 * THOUSAND) });
        let already = Settings { cache_bytes: Some(1.0), quantized: true, ..Settings::default() };
        assert_eq!(memory(Some(128 * 1024)).context_with_8_bits(&already, 32 * THOUSAND), With8Bits::default());
        assert_eq!(memory(None).context_with_8_bits(&Settings::default(), 32 * THOUSAND).weights, None);
    }

    #[test]
    fn a_context_is_the_longest_that_fits_and_printed_in_whole_thousands() {
        assert_eq!(longest(131_072, CELLS, |context| context <= 50_000), Some(48 * 1024));
        assert_eq!(longest(8192, CELLS, |context| context <= 3000), Some(2816));
        assert_eq!(longest(8192, CELLS, |_| true), None);
        assert_eq!(longest(8192, CELLS, |_| false), None);
    }
}

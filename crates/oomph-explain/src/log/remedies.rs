//! From a failure and the run's settings to the question that the catalogue of remedies answers.

use std::str::FromStr;

use oomph_remedy::{Cause, Framework, Installed, Memory, Operation, Platform, Settings, Situation, Suspect, Task};

use super::report::{AvoidAdvice, Failure, RemedyOffer, RunSettings};

/// Causes below this confidence do not choose remedies.
const LEAST_CONFIDENCE: f64 = 0.4;

/// What a traceback shows in addition to the operation.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// Whether the model is made of convolutions, where that is known.
    pub convolves: Option<bool>,
    /// What went on within the operation.
    pub within: Option<Operation>,
    /// Whether the model is wrapped for data-parallel training: there are several cards.
    pub in_ddp: bool,
    /// Whether a binding of llama.cpp's for Python failed, not one of its own programs.
    pub in_binding: bool,
    /// Whether the user's line hands the binding one of the library's structures.
    pub with_structures: bool,
    /// Whether what failed is the buffer that llama.cpp computes in.
    pub in_compute_buffer: bool,
}

/// How the arguments of llama.cpp's own programs are written in its bindings for Python, flag by flag.
const BINDING: [(&str, &str); 4] =
    [("-c ", "n_ctx="), ("-ngl ", "n_gpu_layers="), ("-ub ", "n_batch="), ("-m ", "model_path=")];

/// The same for attributes of the library's structures, which have more of them.
const STRUCTURES: [(&str, &str); 4] = [
    ("-ub ", "n_ubatch="),
    ("-fa on -ctk q8_0 -ctv q8_0", "type_k=8, type_v=8"),
    ("-fa -ctk q8_0 -ctv q8_0", "type_k=8, type_v=8"),
    ("--no-kv-offload", "offload_kqv=False"),
];

/// Remedies of [`NOT_OF_BINDINGS`] that the structures have attributes for.
const OF_STRUCTURES: [&str; 2] = ["kv-cache-dtype", "kv-cache-offload"];

/// Remedies of llama.cpp's own programs that its bindings have no argument for, or another one in each.
const NOT_OF_BINDINGS: [&str; 4] = ["let-it-fit", "kv-cache-dtype", "kv-cache-offload", "experts-on-cpu"];

/// Writes a remedy of llama.cpp's command line for its bindings.
fn of_binding(offer: &mut RemedyOffer, with_structures: bool) {
    let more: &[(&str, &str)] = if with_structures { &STRUCTURES } else { &[] };
    if let Some((value, argument)) =
        more.iter().chain(&BINDING).find_map(|(flag, argument)| Some((offer.apply.strip_prefix(flag)?, argument)))
    {
        // A name of a file is a string there.
        let quote = if *argument == "model_path=" { "\"" } else { "" };
        offer.apply = format!("{argument}{quote}{value}{quote}");
    }
}

/// Fills in what to do and what not to try.
pub(crate) fn advise(failure: &mut Failure, settings: &RunSettings, seen: Seen) {
    if failure.causes.is_empty() {
        return;
    }
    let mut situation = situation(failure, settings, seen);
    let binding = failure.framework.as_deref() == Some("llama.cpp") && seen.in_binding;
    if binding {
        // A smaller cache makes no room for the buffer's one request.
        let has = seen.with_structures && !seen.in_compute_buffer;
        let lacks = |remedy: &&&str| !(has && OF_STRUCTURES.contains(*remedy));
        situation.on.extend(NOT_OF_BINDINGS.iter().filter(lacks).map(|remedy| (*remedy).to_owned()));
    }
    let suggestion = oomph_remedy::suggest(&situation);
    failure.remedies = suggestion
        .remedies
        .into_iter()
        .map(|offer| RemedyOffer {
            id: offer.id,
            title: offer.title,
            apply: offer.apply,
            frees_bytes: offer.frees_bytes,
            cost: offer.cost,
            because: offer.because,
        })
        .collect();
    if binding {
        failure.remedies.iter_mut().for_each(|offer| of_binding(offer, seen.with_structures));
    }
    if failure.pattern == "ggml.context" {
        // The message itself says that the context is too long.
        failure.remedies.sort_by_key(|offer| offer.id != "shorter-context");
    }
    if seen.in_compute_buffer {
        failure.remedies.sort_by_key(|offer| offer.id != "smaller-compute-buffer");
    }
    failure.avoid = suggestion
        .avoid
        .into_iter()
        .map(|avoid| AvoidAdvice { id: avoid.id, title: avoid.title, because: avoid.because })
        .collect();
}

/// The failure in the catalogue's terms.
fn situation(failure: &Failure, settings: &RunSettings, seen: Seen) -> Situation {
    let facts = &failure.facts;
    let mut causes: Vec<Suspect> = failure
        .causes
        .iter()
        .filter(|cause| cause.confidence >= LEAST_CONFIDENCE)
        .map(|cause| Suspect { cause: cause.cause, bytes: cause.bytes })
        .collect();
    if causes.is_empty() {
        causes.extend(failure.causes.first().map(|cause| Suspect { cause: cause.cause, bytes: cause.bytes }));
    }
    // Smaller tensors fit smaller pieces: what helps a full pool helps one whose free memory is in pieces, too.
    let in_pieces = failure.causes.len() == 1 && failure.causes[0].cause == Cause::Fragmentation;
    if in_pieces && failure.derived.reserved_bytes.is_none() {
        causes.push(Suspect { cause: Cause::Full, bytes: None });
    }
    let spilled = failure.causes.iter().any(|cause| cause.cause == Cause::DriverSpill);
    let in_notebook = failure.site.as_ref().is_some_and(|site| {
        site.file.starts_with("In") || site.file.contains("ipykernel") || site.file.contains("ipython-input")
    });
    Situation {
        frameworks: frameworks(failure, settings),
        // A model without weights to train is not wrapped.
        task: task(failure)
            .or_else(|| (seen.in_ddp && failure.operation != Some(Operation::Evaluation)).then_some(Task::Training)),
        causes,
        owners: None,
        memory: Memory {
            requested: facts.requested_bytes,
            capacity: facts.capacity_bytes,
            free: facts.free_bytes,
            allocated: facts.allocated_bytes,
            reserved: failure.derived.reserved_bytes,
            allowed: facts.limit_bytes,
            process: facts.process_bytes.filter(|_| !failure.derived.process_unknown),
            other_processes: failure.derived.other_tenants_bytes,
            largest_other: facts.other_processes.iter().filter_map(|other| other.bytes).max(),
            graph_pools: facts.private_pools_bytes,
        },
        settings: Settings {
            batch_size: settings.number("batch_size"),
            gradient_accumulation: settings.number("gradient_accumulation"),
            sequence_length: settings.number("sequence_length"),
            context_length: facts.context_tokens.or_else(|| settings.number("context_length")),
            context_that_fits: facts.context_tokens_that_fit,
            concurrent_sequences: settings.number("concurrent_sequences"),
            memory_utilization: facts
                .utilization
                .or_else(|| settings.get("memory_utilization").and_then(|value| value.parse().ok())),
            gpu_layers: settings.number("gpu_layers"),
            model_parameters: settings.number("parameters"),
            trainable_parameters: settings.number("trainable_parameters"),
            world_size: settings.number("world_size"),
            convolves: seen.convolves,
            ..Settings::default()
        },
        on: already_on(settings),
        operation: failure.operation,
        within: seen.within,
        compute_capability: settings.get("compute_capability").and_then(|value| {
            let (major, minor) = value.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        }),
        gpus: seen.in_ddp.then(|| {
            let of_ranks = failure.rank.map_or(0, |rank| rank.saturating_add(1));
            let world = settings.number("world_size").and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
            of_ranks.max(world).max(2)
        }),
        platform: spilled.then_some(Platform::Windows),
        notebook: in_notebook,
    }
}

/// The frameworks that take part, each with what it is built on.
fn frameworks(failure: &Failure, settings: &RunSettings) -> Vec<Installed> {
    let mut frameworks: Vec<Installed> = Vec::new();
    let mut add = |name: &str| {
        let Some(framework) = framework(name) else { return };
        if frameworks.iter().all(|known| known.framework != framework) {
            frameworks.push(match settings.get(name) {
                Some(version) => Installed::new(framework, version),
                None => framework.into(),
            });
            for below in framework.below() {
                if frameworks.iter().all(|known| known.framework != *below) {
                    frameworks.push((*below).into());
                }
            }
        }
    };
    for name in [failure.front_end.as_deref(), failure.framework.as_deref()].into_iter().flatten() {
        add(name);
    }
    add("machine");
    if let Some(version) = settings.get("torch") {
        for known in &mut frameworks {
            if known.framework == Framework::Pytorch {
                *known = Installed::new(Framework::Pytorch, version);
            }
        }
    }
    frameworks
}

/// The catalogue's framework of a name in the tables of messages.
fn framework(name: &str) -> Option<Framework> {
    let id = match name {
        "llama.cpp" => "llama-cpp",
        "ik_llama.cpp" => "ik-llama-cpp",
        "whisper.cpp" => "whisper-cpp",
        "onnxruntime" => "onnx-runtime",
        "paddlepaddle" => "paddle",
        "cuda.jl" => "cuda-jl",
        "host" | "python" | "numpy" => "machine",
        "nccl" | "triton-kernel" => "pytorch",
        other => other,
    };
    Framework::from_str(id).ok()
}

fn task(failure: &Failure) -> Option<Task> {
    match failure.operation {
        Some(Operation::Backward | Operation::OptimizerInit | Operation::OptimizerStep) => return Some(Task::Training),
        Some(Operation::Generation | Operation::KvCacheInit | Operation::Denoise) => return Some(Task::Inference),
        _ => {}
    }
    // The user's own line says it: only training has a loss, and people name the function after what it does.
    if let Some(site) = &failure.site {
        let says = |text: &Option<String>, words: &[&str]| {
            text.as_ref().is_some_and(|text| words.iter().any(|word| text.contains(word)))
        };
        if says(&site.code, &["loss", ".train(", ".fit("]) || says(&site.function, &["train", "training_step"]) {
            return Some(Task::Training);
        }
        if says(&site.code, &[".generate(", "num_images_per_prompt", "no_grad", "inference_mode"]) {
            return Some(Task::Inference);
        }
    }
    let name = failure.front_end.as_deref().or(failure.framework.as_deref())?;
    match name {
        "vllm" | "sglang" | "tgi" | "exllama" | "llama.cpp" | "ik_llama.cpp" | "ollama" | "whisper.cpp"
        | "tensorrt" | "tensorrt-llm" | "triton-server" | "onnxruntime" | "faster-whisper" | "comfyui"
        | "automatic1111" | "forge" | "invokeai" | "directml" => Some(Task::Inference),
        "kohya" | "axolotl" | "torchtune" | "llama-factory" | "megatron" | "deepspeed" | "trl" => Some(Task::Training),
        _ => None,
    }
}

/// Remedies that the log says are in effect, by their ids in the catalogue.
fn already_on(settings: &RunSettings) -> std::collections::BTreeSet<String> {
    let mut on = std::collections::BTreeSet::new();
    let mut set = |id: &str| {
        if oomph_remedy::Catalogue::builtin().remedies().iter().any(|remedy| remedy.id == id) {
            on.insert(id.to_owned());
        }
    };
    if matches!(settings.get("gradient_checkpointing"), Some("True" | "true" | "enabled")) {
        set("gradient-checkpointing");
    }
    if settings.get("allocator").is_some_and(|value| value.contains("expandable_segments:True")) {
        set("expandable-segments");
    }
    match settings.get("offload") {
        Some("enable_model_cpu_offload") => set("model-cpu-offload"),
        Some("enable_sequential_cpu_offload") => set("sequential-cpu-offload"),
        Some(words) if words.contains("offload_optimizer") => set("optimizer-cpu-offload"),
        _ => {}
    }
    if settings.get("kv_cache_type").is_some_and(|kind| !matches!(kind, "f16" | "auto" | "bf16" | "fp16")) {
        set("kv-cache-dtype");
    }
    if settings.get("optimizer").is_some_and(|name| name.to_ascii_lowercase().contains("8bit")) {
        set("adam-8bit");
    }
    on
}

//! Language models that are loaded or served.

use oomph_remedy::{Cause, Framework, Memory, Operation, Settings};

use super::{Case, GIB, MIB, inference, memory};

#[expect(clippy::too_many_lines, reason = "a table")]
pub fn cases() -> Vec<Case> {
    use Framework::{LlamaCpp, Ollama, Pytorch, Sglang, Tgi, Transformers, Vllm};
    let vllm = [Vllm, Pytorch];
    let mut occupied = inference(&vllm, Cause::OtherProcess, Operation::ContextInit);
    occupied.memory = Memory { capacity: Some(24 * GIB), free: Some(18 * GIB), ..Memory::default() };
    occupied.settings.memory_utilization = Some(0.9);

    let mut small_cache = inference(&vllm, Cause::KvCache, Operation::KvCacheInit);
    small_cache.settings = Settings {
        memory_utilization: Some(0.9),
        context_length: Some(131_072),
        context_that_fits: Some(23_456),
        ..Settings::default()
    };

    let mut at_its_end = small_cache.clone();
    at_its_end.settings.memory_utilization = Some(0.95);

    let mut graphs = inference(&vllm, Cause::GraphPools, Operation::GraphCapture);
    graphs.memory.graph_pools = Some(2 * GIB);

    let mut ngl = inference(&[LlamaCpp], Cause::Full, Operation::Load);
    ngl.settings = Settings { gpu_layers: Some(33), context_length: Some(32_768), ..Settings::default() };
    ngl.memory = Memory { requested: Some(4 * GIB), capacity: Some(8 * GIB), free: Some(2 * GIB), ..Memory::default() };

    let mut context = inference(&[LlamaCpp], Cause::ContextLength, Operation::KvCacheInit);
    context.settings.context_length = Some(131_072);
    context.memory = Memory { requested: Some(16 * GIB), capacity: Some(24 * GIB), ..Memory::default() };

    let mut load_70b = inference(&[Transformers, Pytorch], Cause::Full, Operation::Load);
    load_70b.settings =
        Settings { model_parameters: Some(70_553_706_496), bytes_per_parameter: Some(2.0), ..Settings::default() };
    load_70b.memory = memory(448 * MIB, 80 * GIB, 100 * MIB, 78 * GIB, 78 * GIB);

    vec![
        Case {
            name: "vLLM finds less free than its share",
            situation: occupied,
            first: "free-other-processes",
            among: &["lower-utilization"],
            never: &["raise-utilization"],
            avoid: &["raise-utilization-when-occupied"],
            words: &["--gpu-memory-utilization 0.74"],
        },
        Case {
            name: "vLLM has too little KV cache for the context",
            situation: small_cache,
            first: "raise-utilization",
            among: &["shorter-context", "kv-cache-dtype"],
            never: &["lower-utilization"],
            avoid: &[],
            words: &["--max-model-len 23456", "--kv-cache-dtype fp8"],
        },
        Case {
            name: "the same at a utilization of 0.95",
            situation: at_its_end,
            first: "kv-cache-dtype",
            among: &["shorter-context", "enforce-eager"],
            never: &["raise-utilization", "lower-utilization"],
            avoid: &["raise-utilization-at-its-end"],
            words: &["--max-model-len 23456"],
        },
        Case {
            name: "vLLM dies while it captures graphs",
            situation: graphs,
            first: "lower-utilization",
            among: &["fewer-graph-sizes"],
            never: &["raise-utilization"],
            avoid: &["raise-utilization-when-full"],
            words: &["cudagraph_capture_sizes"],
        },
        Case {
            name: "SGLang in prefill",
            situation: inference(&[Sglang, Pytorch], Cause::Full, Operation::Generation),
            first: "lower-utilization",
            among: &[],
            never: &["raise-utilization"],
            avoid: &[],
            words: &["--mem-fraction-static"],
        },
        Case {
            name: "TGI has no room for its context",
            situation: inference(&[Tgi, Pytorch], Cause::KvCache, Operation::KvCacheInit),
            first: "kv-cache-dtype",
            among: &["shorter-context"],
            never: &["lower-utilization"],
            avoid: &[],
            words: &["--max-total-tokens"],
        },
        Case {
            name: "llama.cpp with all layers on 8 GiB",
            situation: ngl,
            first: "let-it-fit",
            among: &["fewer-gpu-layers"],
            never: &["expandable-segments", "device-map"],
            avoid: &["ngl-with-fit"],
            words: &["-ngl 24"],
        },
        Case {
            name: "llama.cpp with a context of 131072",
            situation: context,
            first: "smaller-compute-buffer",
            among: &["kv-cache-dtype", "shorter-context"],
            never: &["expandable-segments"],
            avoid: &[],
            words: &["-c 65536", "-ctk q8_0 -ctv q8_0"],
        },
        Case {
            name: "Ollama",
            situation: inference(&[Ollama], Cause::KvCache, Operation::KvCacheInit),
            first: "one-slot",
            among: &["kv-cache-dtype"],
            never: &["expandable-segments", "raise-utilization"],
            avoid: &[],
            words: &["OLLAMA_NUM_PARALLEL=1", "OLLAMA_KV_CACHE_TYPE=q8_0"],
        },
        Case {
            name: "a 70B in bf16 does not load on 80 GiB",
            situation: load_70b,
            first: "weights-nf4",
            among: &["device-map"],
            never: &["smaller-batch", "no-grad", "sdpa", "kv-cache-dtype"],
            avoid: &["weights-do-not-fit"],
            words: &["load_in_4bit=True"],
        },
    ]
}

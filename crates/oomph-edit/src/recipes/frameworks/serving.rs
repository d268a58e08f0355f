//! Scripts that serve a language model by vLLM or llama-cpp-python: the arguments of `LLM(...)` and `Llama(...)`.

use std::collections::BTreeMap;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::literals::plain;
use crate::names::{Value, follow};
use crate::program::Program;
use crate::source::At;

use super::super::{Recipe, cannot};
use super::imports;

/// What makes an engine, and how its library is imported.
const ENGINES: &[(&str, &str)] = &[
    ("LLM", "vllm"),
    ("AsyncEngineArgs", "vllm"),
    ("EngineArgs", "vllm"),
    ("Llama", "llama_cpp"),
    ("Llama.from_pretrained", "llama_cpp"),
];

/// llama.cpp's number for 8-bit blocks, `GGML_TYPE_Q8_0`.
const Q8_0: &str = "8";

/// Sequences that vLLM works on at a time where nothing is said.
const SEQUENCES: u64 = 256;

/// Tokens of a piece of a long prompt; the catalogue's `chunked-processing` has the same number.
const CHUNK: u64 = 2048;

const VLLM: &[(&str, Recipe)] = &[
    ("shorter-context", |draft| shorter(draft, "max_model_len")),
    ("kv-cache-dtype", |draft| set(draft, &[("kv_cache_dtype", "\"fp8\"")])),
    ("fewer-sequences", |draft| fewer(draft, "max_num_seqs", Some(SEQUENCES), |old, _| Some(old / 2))),
    ("chunked-processing", chunks),
    ("enforce-eager", |draft| set(draft, &[("enforce_eager", "True")])),
    ("lower-utilization", lower_share),
    ("raise-utilization", |draft| set(draft, &[("gpu_memory_utilization", "0.95")])),
    ("fp8-weights", |draft| set(draft, &[("quantization", "\"fp8\"")])),
    ("weights-nf4", |draft| set(draft, &[("quantization", "\"bitsandbytes\"")])),
    ("device-map", |draft| set(draft, &[("cpu_offload_gb", "8")])),
    ("tensor-parallel", |draft| cards(draft, "tensor_parallel_size")),
    ("pipeline-parallel", |draft| cards(draft, "pipeline_parallel_size")),
];

const LLAMA_CPP: &[(&str, Recipe)] = &[
    ("shorter-context", |draft| shorter(draft, "n_ctx")),
    ("flash-attention", |draft| set(draft, &[("flash_attn", "True")])),
    ("kv-cache-dtype", |draft| set(draft, &[("flash_attn", "True"), ("type_k", Q8_0), ("type_v", Q8_0)])),
    ("kv-cache-offload", |draft| set(draft, &[("offload_kqv", "False")])),
    ("smaller-compute-buffer", |draft| set(draft, &[("n_ubatch", "128")])),
    ("fewer-gpu-layers", |draft| fewer(draft, "n_gpu_layers", None, |_, fits| fits)),
];

/// The recipes for a program that serves; `None` where it does not.
pub fn recipes(program: &Program) -> Option<&'static [(&'static str, Recipe)]> {
    match engines(program).first()?.1 {
        "vllm" => Some(VLLM),
        _ => Some(LLAMA_CPP),
    }
}

/// The library by which a program serves, and the plain values of the arguments of the engine that it makes. Of several
/// engines nothing is said.
pub fn served(program: &Program) -> Option<(&'static str, BTreeMap<String, String>)> {
    let engines = engines(program);
    let [(call, library)] = engines.as_slice() else { return None };
    let mut values = BTreeMap::new();
    let count = call.arguments.named_child_count();
    for node in (0..count).filter_map(|place| call.arguments.named_child(place)) {
        let (name, value) = match (node.kind(), node.child_by_field_name("name"), node.child_by_field_name("value")) {
            ("keyword_argument", Some(name), Some(value)) => (call.at.source.of(name).to_owned(), value),
            ("comment" | "dictionary_splat", ..) => continue,
            // The first argument of both is the model.
            _ if values.is_empty() => ("model".to_owned(), node),
            _ => continue,
        };
        if let Some(value) = value_of(program, call.at.with(value)) {
            values.insert(name, value);
        }
    }
    Some((library, values))
}

/// The calls that make an engine.
fn engines(program: &Program) -> Vec<(Call<'_>, &'static str)> {
    let of = |call: Call<'_>| {
        let known = ENGINES.iter().find(|(name, library)| {
            let path = call.path();
            (path == *name || path.strip_suffix(*name).is_some_and(|module| module.ends_with('.')))
                && imports(call.at.source, library)
        });
        known.map(|(_, library)| *library)
    };
    program.calls().into_iter().filter_map(|call| Some((call, of(call)?))).collect()
}

/// What an expression says, followed to a literal or to an option of the program.
fn value_of(program: &Program, at: At<'_>) -> Option<String> {
    // `-1` is not a literal of the grammar's.
    if at.node.kind() == "unary_operator" {
        return Some(at.text().to_owned());
    }
    match follow(program, at) {
        Value::Literal(at) => plain(at),
        Value::Option(option) => option.value_in(program.arguments()),
        Value::Unknown => None,
    }
}

/// Sets arguments of each engine.
fn set(draft: &mut Draft<'_>, arguments: &[(&str, &str)]) -> Result<(), CannotPlace> {
    let program = draft.program;
    for (call, _) in engines(program) {
        for (name, value) in arguments {
            let wanted = value.trim_matches('"');
            let Some(given) = call.value(name) else {
                draft.edit(call.at.file, Way::Argument, call.adding(name, value));
                continue;
            };
            if value_of(program, given).as_deref() == Some(wanted) {
                continue;
            }
            match follow(program, given) {
                Value::Option(option) => draft.set_option(&option, wanted),
                Value::Literal(at) => draft.edit(at.file, Way::Argument, Edit::replace(at.node, *value)),
                Value::Unknown => draft.edit(given.file, Way::Argument, Edit::replace(given.node, *value)),
            }
        }
    }
    if draft.is_empty() {
        return cannot("the engine is made outside of the program's own files, or it has this already");
    }
    Ok(())
}

/// A number of each engine's made smaller; `default` is what holds where the program does not say it.
fn fewer(
    draft: &mut Draft<'_>,
    name: &str,
    default: Option<u64>,
    less: impl Fn(u64, Option<u64>) -> Option<u64>,
) -> Result<(), CannotPlace> {
    let Some((_, values)) = served(draft.program) else {
        return cannot("which engine of the program is meant is not certain");
    };
    let old = values.get(name).map(|text| text.replace('_', ""));
    // All layers are written as -1.
    let old = match old.as_deref().map(str::parse::<u64>) {
        Some(Ok(old)) => old,
        Some(Err(_)) if name == "n_gpu_layers" => u64::MAX,
        Some(Err(_)) => return cannot(format!("what {name} is was not found")),
        None => match default {
            Some(default) => default,
            None => return cannot(format!("the program sets no {name}")),
        },
    };
    let fits = draft.facts.layers_that_fit;
    match less(old, fits).filter(|new| (1..old).contains(new)) {
        Some(new) => set(draft, &[(name, &new.to_string())]),
        None => cannot(format!("how much less {name} would do is not known")),
    }
}

/// The longest context that fits, with what is in 8 bits by now, or half of it where that is not known.
fn shorter(draft: &mut Draft<'_>, name: &str) -> Result<(), CannotPlace> {
    let (_, values) = served(draft.program).unwrap_or_default();
    let is_fp8 = |name: &str| values.get(name).is_some_and(|kind| kind == "fp8");
    let with_8_bits = draft.facts.context_with_8_bits;
    let fits = if is_fp8("kv_cache_dtype") {
        with_8_bits.cache
    } else if is_fp8("quantization") {
        with_8_bits.weights
    } else {
        None
    };
    match fits.or(draft.facts.context_that_fits) {
        Some(fits) => set(draft, &[(name, &fits.to_string())]),
        None => fewer(draft, name, None, |old, _| Some(old / 2)),
    }
}

/// Pieces of long prompts, so many times smaller as the amount says.
fn chunks(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let tokens = CHUNK / draft.amount.by.unwrap_or(1).clamp(1, CHUNK);
    let given = served(draft.program).and_then(|(_, values)| values.get("max_num_batched_tokens")?.parse::<u64>().ok());
    if given.is_some_and(|given| given <= tokens) {
        return cannot("the program's pieces are as small already");
    }
    set(draft, &[("max_num_batched_tokens", &tokens.to_string())])
}

/// The smaller share of the card that belongs to the amount.
fn lower_share(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let shares = &draft.facts.lower_shares;
    // Who asks only whether it can be placed names no amount.
    let share = match draft.amount.by {
        Some(percent) => shares.get(&percent),
        None => shares.values().next(),
    };
    match share.copied() {
        Some(share) => set(draft, &[("gpu_memory_utilization", &format!("{share:.2}"))]),
        None => cannot("how much less of the card would do is not known"),
    }
}

/// As many cards as there are.
fn cards(draft: &mut Draft<'_>, name: &str) -> Result<(), CannotPlace> {
    match draft.facts.cards {
        0 | 1 => cannot("there is one card"),
        cards => set(draft, &[(name, &cards.to_string())]),
    }
}

//! Scripts that serve a language model by vLLM or llama.cpp: the settings of their engines.

use std::collections::BTreeMap;

use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::names::{Value, follow};
use crate::program::Program;
use crate::source::At;

use super::super::{Recipe, cannot};
use super::engines::{Engine, Library, Place, engines, model_of, value_of};

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
    ("flash-attention", |draft| set(draft, &[FLASH_ATTENTION])),
    ("kv-cache-dtype", |draft| set(draft, &[FLASH_ATTENTION, ("type_k", Q8_0), ("type_v", Q8_0)])),
    ("kv-cache-offload", |draft| set(draft, &[("offload_kqv", "False")])),
    ("smaller-compute-buffer", |draft| set(draft, &[("n_ubatch", "128")])),
    ("fewer-gpu-layers", |draft| fewer(draft, "n_gpu_layers", None, |_, fits| fits)),
];

/// What `Llama` calls fused attention; the library's own structure has a number for it (`Engine::spelled`).
const FLASH_ATTENTION: (&str, &str) = ("flash_attn", "True");

/// The recipes for a program that serves; `None` where it does not.
pub fn recipes(program: &Program) -> Option<&'static [(&'static str, Recipe)]> {
    match engines(program).first()?.library {
        Library::Vllm => Some(VLLM),
        Library::LlamaCpp | Library::Cyllama => Some(LLAMA_CPP),
    }
}

/// The library by which a program serves, and the plain values of the settings of the engine that it makes. Of several
/// engines nothing is said.
pub fn served(program: &Program) -> Option<(&'static str, BTreeMap<String, String>)> {
    let engines = engines(program);
    let library = engines.first()?.library;
    let of_models = engines.iter().filter(|engine| engine.is_of_a_model()).count();
    if of_models > 1 || engines.len() - of_models > 1 {
        return None;
    }
    let given = engines.iter().flat_map(Engine::given);
    let mut values: BTreeMap<String, String> =
        given.filter_map(|(name, at)| Some((name.to_owned(), value_of(program, at)?))).collect();
    if let Some(model) = model_of(program, &engines) {
        values.entry("model".to_owned()).or_insert(model);
    }
    // All layers go to the card unless it is asked for fewer.
    if library == Library::Cyllama {
        values.entry("n_gpu_layers".to_owned()).or_insert_with(|| "-1".to_owned());
    }
    Some((library.module(), values))
}

/// Gives each engine settings, as `LLM` or `Llama` spells them.
fn set(draft: &mut Draft<'_>, settings: &[(&str, &str)]) -> Result<(), CannotPlace> {
    let program = draft.program;
    for engine in engines(program) {
        let spelled = settings.iter().filter_map(|(name, value)| engine.spelled(program, name, value));
        for (name, value) in spelled {
            let wanted = value.trim_matches('"');
            match engine.place(name, value) {
                Some(Place::Added(file, edit)) => draft.edit(file, Way::Argument, edit),
                Some(Place::Value(given)) if value_of(program, given).as_deref() != Some(wanted) => {
                    replace(draft, given, value);
                }
                _ => {}
            }
        }
    }
    if draft.is_empty() {
        return cannot("the engine is made outside of the program's own files, has no such setting, or has it already");
    }
    Ok(())
}

/// Writes another value where one is given.
fn replace(draft: &mut Draft<'_>, given: At<'_>, value: &str) {
    match follow(draft.program, given) {
        Value::Option(option) => draft.set_option(&option, value.trim_matches('"')),
        Value::Literal(at) => draft.edit(at.file, Way::Argument, Edit::replace(at.node, value)),
        Value::Word(place) => draft.set_word(place, value.trim_matches('"')),
        Value::Unknown => draft.edit(given.file, Way::Argument, Edit::replace(given.node, value)),
    }
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

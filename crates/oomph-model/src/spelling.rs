//! Normalises the spellings in which people write the names of models.
//!
//! A hub name, a short name and the name of a tuned or quantized copy can all mean one entry of the library. Case,
//! the owner and the marks between words never matter: `flux-1-dev` is `FLUX.1-dev`.

use serde_json::{Value, json};

/// Endings that tell a tuned variant from its base, which has the same shape.
const VARIANTS: &[&str] =
    &["-instruct", "-chat", "-it", "-pt", "-hf", "-base", "-v0.1", "-diffusers", "-bf16", "-fp16", "-2507", "-unsloth"];
/// Beginnings that some owners write before a name.
const PREFIXES: &[&str] = &["meta-"];
/// Endings that say in which format the weights are kept.
const FORMATS: &[(&str, Format)] = &[
    ("-awq", Format::Awq),
    ("-awq-int4", Format::Awq),
    ("-gptq", Format::Gptq(4)),
    ("-gptq-int4", Format::Gptq(4)),
    ("-gptq-int8", Format::Gptq(8)),
    ("-bnb-4bit", Format::Nf4),
    ("-4bit", Format::Nf4),
    ("-bnb-8bit", Format::Int8),
    ("-8bit", Format::Int8),
    ("-fp8", Format::Fp8),
    ("-fp8-dynamic", Format::Fp8),
    ("-gguf", Format::Gguf),
];

/// A format of weights, as far as a name shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Awq,
    Gptq(u64),
    Nf4,
    Int8,
    Fp8,
    Gguf,
}

impl Format {
    /// The `quantization_config` that files of this name usually have, and what the user should know of it.
    pub fn usual(self) -> (Option<Value>, String) {
        let (config, words) = match self {
            Self::Awq => {
                (json!({"quant_method": "awq", "bits": 4, "group_size": 128}), "AWQ, 4 bits in groups of 128".into())
            }
            Self::Gptq(bits) => (
                json!({"quant_method": "gptq", "bits": bits, "group_size": 128}),
                format!("GPTQ, {bits} bits in groups of 128"),
            ),
            Self::Nf4 => (
                json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true}),
                "bitsandbytes NF4 with double quantization".into(),
            ),
            Self::Int8 => {
                (json!({"quant_method": "bitsandbytes", "load_in_8bit": true}), "bitsandbytes, 8 bits".into())
            }
            Self::Fp8 => (json!({"quant_method": "fp8"}), "fp8, 8 bits a weight".into()),
            Self::Gguf => {
                let note = "the name does not say which GGUF quantization; --gguf Q4_K_M plans one";
                return (None, note.into());
            }
        };
        (Some(config), format!("planned as {words}, as the name says; the files were not read"))
    }
}

/// A name without what no shape depends on: case, and which marks separate words. A mark between two digits counts,
/// because 1.3 is not 13.
pub(crate) fn squeezed(name: &str) -> String {
    let mut squeezed = String::with_capacity(name.len());
    let mut parted = false;
    for letter in name.chars() {
        if !letter.is_ascii_alphanumeric() {
            parted = true;
            continue;
        }
        if parted && letter.is_ascii_digit() && squeezed.ends_with(|last: char| last.is_ascii_digit()) {
            squeezed.push('.');
        }
        squeezed.push(letter.to_ascii_lowercase());
        parted = false;
    }
    squeezed
}

/// The name without its owner, in lower case, its words parted by hyphens.
pub(crate) fn own(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase().replace(['_', ' ', ':'], "-");
    name.rsplit_once('/').map_or(name.clone(), |(_, own)| own.to_owned())
}

/// What a name may stand for, the most literal reading first: a squeezed name, and the format of the weights.
pub(crate) fn readings(name: &str) -> Vec<(String, Option<Format>)> {
    let mut readings = vec![(own(name), None)];
    let mut place = 0;
    while let Some((text, format)) = readings.get(place).cloned() {
        place += 1;
        let ends = VARIANTS.iter().filter_map(|variant| Some((text.strip_suffix(variant)?, format)));
        let starts = PREFIXES.iter().filter_map(|prefix| Some((text.strip_prefix(prefix)?, format)));
        let formats = FORMATS.iter().filter(|_| format.is_none());
        let formats = formats.filter_map(|(end, format)| Some((text.strip_suffix(end)?, Some(*format))));
        let shorter: Vec<_> =
            ends.chain(starts).chain(formats).map(|(text, format)| (text.to_owned(), format)).collect();
        readings.extend(shorter.into_iter().filter(|(text, _)| !text.is_empty()));
        readings.truncate(MOST_READINGS);
    }
    readings.into_iter().map(|(text, format)| (squeezed(&text), format)).collect()
}

/// Beyond so many readings a name is not a name.
const MOST_READINGS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_literal_reading_comes_first_and_the_list_is_bounded() {
        let read = readings("Qwen/Qwen2.5-7B-Instruct-AWQ");
        assert_eq!(read[0], ("qwen2.5.7binstructawq".into(), None));
        assert!(read.contains(&("qwen2.5.7b".into(), Some(Format::Awq))), "{read:?}");
        assert!(readings(&"-hf".repeat(10_000)).len() <= MOST_READINGS);
        assert_eq!(readings("")[0].0, "");
        assert_ne!(squeezed("opt-1.3b"), squeezed("OPT_13B"));
        assert_eq!(squeezed("opt-1.3b"), squeezed("OPT_1_3B"));
    }
}

//! Reads and changes one argument of a command line: `--flag value`, `--flag=value`, `-f value`, `key=value`, `KEY
//! VALUE`.

use std::ops::Range;

use crate::framework::Framework;

/// How a program writes its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `--flag value` and `--flag=value`; the last of several counts (argparse and its like).
    Flags,
    /// `key=value` (torchtune, Ultralytics, LLaMA-Factory's overrides).
    Assignments,
    /// `KEY VALUE` at the end (Detectron2).
    Pairs,
}

/// How this framework's command line is written.
pub fn style(framework: Framework) -> Style {
    match framework {
        Framework::Torchtune | Framework::Ultralytics | Framework::LlamaFactory => Style::Assignments,
        Framework::Detectron2 => Style::Pairs,
        _ => Style::Flags,
    }
}

/// Names of one and the same argument, by framework; the first is the one that is written.
const SYNONYMS: &[(Framework, &[&str])] = &[
    (Framework::LlamaCpp, &["-ngl", "--gpu-layers", "--n-gpu-layers"]),
    (Framework::LlamaCpp, &["-c", "--ctx-size"]),
    (Framework::LlamaCpp, &["-b", "--batch-size"]),
    (Framework::LlamaCpp, &["-ub", "--ubatch-size"]),
    (Framework::LlamaCpp, &["-np", "--parallel"]),
    (Framework::LlamaCpp, &["-ctk", "--cache-type-k"]),
    (Framework::LlamaCpp, &["-ctv", "--cache-type-v"]),
    (Framework::LlamaCpp, &["-fa", "--flash-attn"]),
    (Framework::LlamaCpp, &["--no-kv-offload", "-nkvo"]),
    (Framework::LlamaCpp, &["--n-cpu-moe", "-ncmoe"]),
    (Framework::LlamaCpp, &["--split-mode", "-sm"]),
    (Framework::LlamaCpp, &["-m", "--model"]),
    (Framework::Vllm, &["--tensor-parallel-size", "-tp"]),
    (Framework::Vllm, &["--pipeline-parallel-size", "-pp"]),
    (Framework::Vllm, &["--quantization", "-q"]),
    (Framework::Vllm, &["--compilation-config", "-O"]),
    (Framework::Sglang, &["--tp-size", "--tensor-parallel-size", "--tp"]),
    (Framework::Timm, &["-b", "--batch-size"]),
    (Framework::Timm, &["--workers", "-j"]),
    (Framework::Fairseq, &["--batch-size", "--max-sentences"]),
    (Framework::Transformers, &["--per_device_train_batch_size", "--per_gpu_train_batch_size"]),
    (Framework::Transformers, &["--per_device_eval_batch_size", "--per_gpu_eval_batch_size"]),
    (Framework::Transformers, &["--max_seq_length", "--block_size", "--max_source_length"]),
    (Framework::VqganClip, &["-cuts", "--num_cuts"]),
    (Framework::VqganClip, &["-s", "--size"]),
];

/// Arguments of which a program takes one at a time: adding one takes the others away.
const EXCLUSIVE: &[(Framework, &[&str])] = &[
    (Framework::Automatic1111, &["--medvram", "--lowvram", "--medvram-sdxl"]),
    (
        Framework::Automatic1111,
        &[
            "--opt-sdp-attention",
            "--opt-sdp-no-mem-attention",
            "--xformers",
            "--opt-sub-quad-attention",
            "--opt-split-attention",
            "--opt-split-attention-v1",
            "--opt-split-attention-invokeai",
            "--disable-opt-split-attention",
        ],
    ),
    (Framework::Comfyui, &["--gpu-only", "--highvram", "--normalvram", "--lowvram", "--novram", "--cpu"]),
    (Framework::Comfyui, &["--cuda-malloc", "--disable-cuda-malloc"]),
    (Framework::Comfyui, &["--cache-classic", "--cache-lru", "--cache-none"]),
    (
        Framework::Comfyui,
        &["--fp32-unet", "--fp64-unet", "--bf16-unet", "--fp16-unet", "--fp8_e4m3fn-unet", "--fp8_e5m2-unet"],
    ),
    (
        Framework::Comfyui,
        &["--fp8_e4m3fn-text-enc", "--fp8_e5m2-text-enc", "--fp16-text-enc", "--fp32-text-enc", "--bf16-text-enc"],
    ),
    (
        Framework::Comfyui,
        &[
            "--use-split-cross-attention",
            "--use-quad-cross-attention",
            "--use-pytorch-cross-attention",
            "--use-sage-attention",
            "--use-flash-attention",
        ],
    ),
    (
        Framework::Forge,
        &[
            "--always-gpu",
            "--always-high-vram",
            "--always-normal-vram",
            "--always-low-vram",
            "--always-no-vram",
            "--always-cpu",
        ],
    ),
    (Framework::Forge, &["--unet-in-bf16", "--unet-in-fp16", "--unet-in-fp8-e4m3fn", "--unet-in-fp8-e5m2"]),
    (Framework::Forge, &["--clip-in-fp8-e4m3fn", "--clip-in-fp8-e5m2", "--clip-in-fp16", "--clip-in-fp32"]),
    (Framework::Forge, &["--attention-split", "--attention-quad", "--attention-pytorch"]),
    (Framework::Kohya, &["--sdpa", "--xformers", "--mem_eff_attn"]),
    (Framework::Kohya, &["--blocks_to_swap", "--cpu_offload_checkpointing"]),
    (Framework::Transformers, &["--bf16", "--fp16"]),
    (Framework::Fairseq, &["--max-tokens", "--batch-size"]),
];

/// Whether two words name the same argument for this framework. Hugging Face's parser takes `-` for `_`.
pub fn same(framework: Framework, one: &str, other: &str) -> bool {
    let dashed = |name: &str| {
        let body = name.trim_start_matches('-');
        format!("{}{}", &name[..name.len() - body.len()], body.replace('_', "-"))
    };
    if one == other || (one.starts_with("--") && dashed(one) == dashed(other)) {
        return true;
    }
    let framework = family(framework);
    SYNONYMS.iter().any(|(owner, names)| {
        *owner == framework
            && names.iter().any(|name| dashed(name) == dashed(one))
            && names.iter().any(|name| dashed(name) == dashed(other))
    })
}

/// The arguments that cannot be combined with this one.
pub fn rivals(framework: Framework, name: &str) -> impl Iterator<Item = &'static str> {
    let framework = family(framework);
    EXCLUSIVE
        .iter()
        .filter(move |(owner, _)| *owner == framework)
        .filter(move |(_, names)| names.contains(&name))
        .flat_map(move |(_, names)| names.iter().copied().filter(move |&other| other != name))
}

/// The framework whose tables are used: TRL's and PEFT's scripts take the Transformers' arguments.
fn family(framework: Framework) -> Framework {
    match framework {
        Framework::Trl | Framework::Peft | Framework::Unsloth => Framework::Transformers,
        Framework::IkLlamaCpp => Framework::LlamaCpp,
        other => other,
    }
}

/// Where an argument is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The words that belong to it: one for `--flag`, `--flag=value` and `key=value`, two for `--flag value`.
    pub words: Range<usize>,
    /// Its value.
    pub value: Option<String>,
}

/// Which words behind a flag belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Yes, no or a number: a switch that may be spelled out, as Hugging Face's parser allows.
    YesNoOrNumber,
    /// Anything but another flag.
    Anything,
}

impl Takes {
    fn takes(self, word: &str) -> bool {
        let number = word.parse::<f64>().is_ok();
        match self {
            Takes::YesNoOrNumber => number || word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false"),
            Takes::Anything => number || !word.starts_with('-'),
        }
    }
}

/// All places of an argument among the words in `range`, the one that counts last.
pub fn places(words: &[String], range: &Range<usize>, framework: Framework, name: &str, takes: Takes) -> Vec<Place> {
    let mut places = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let word = words[at].as_str();
        let length = match style(framework) {
            Style::Flags => match word.split_once('=') {
                Some((flag, value)) if same(framework, flag, name) => {
                    places.push(Place { words: at..at + 1, value: Some(value.to_owned()) });
                    1
                }
                _ if same(framework, word, name) => {
                    let value = words[at + 1..range.end].first().filter(|next| takes.takes(next));
                    places.push(Place { words: at..at + 1 + usize::from(value.is_some()), value: value.cloned() });
                    1 + usize::from(value.is_some())
                }
                _ => 1,
            },
            Style::Assignments => {
                if let Some((key, value)) = word.split_once('=')
                    && key.trim_start_matches("--") == name
                {
                    places.push(Place { words: at..at + 1, value: Some(value.to_owned()) });
                }
                1
            }
            Style::Pairs => {
                if word == name && at + 1 < range.end {
                    places.push(Place { words: at..at + 2, value: Some(words[at + 1].clone()) });
                    2
                } else {
                    1
                }
            }
        };
        at += length;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_form_of_a_flag_is_found_and_the_last_one_counts() {
        let line = words("--lr -1e-4 --per_gpu_train_batch_size 8 --per-device-train-batch-size=4 --bf16 --fp16 True");
        let range = 0..line.len();
        let found = places(&line, &range, Framework::Transformers, "--per_device_train_batch_size", Takes::Anything);
        assert_eq!(found.iter().map(|place| place.value.as_deref()).collect::<Vec<_>>(), [Some("8"), Some("4")]);
        let rate = places(&line, &range, Framework::Transformers, "--lr", Takes::Anything);
        assert_eq!(rate[0].value.as_deref(), Some("-1e-4"));
        let bf16 = places(&line, &range, Framework::Transformers, "--bf16", Takes::Anything);
        assert_eq!((bf16[0].words.clone(), bf16[0].value.clone()), (5..6, None));
    }

    #[test]
    fn a_switch_does_not_take_the_word_behind_it() {
        let line = words("--enforce-eager model --max-model-len 4096");
        let found = places(&line, &(0..4), Framework::Vllm, "--enforce-eager", Takes::YesNoOrNumber);
        assert_eq!(found[0].words, 0..1);
    }

    #[test]
    fn rivals_are_known() {
        let rivals: Vec<_> = rivals(Framework::Comfyui, "--novram").collect();
        assert!(rivals.contains(&"--highvram") && !rivals.contains(&"--novram"));
    }
}

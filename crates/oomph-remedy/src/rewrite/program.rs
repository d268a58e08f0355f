//! Finds which program a command line starts, behind its launchers, and which arguments are the program's own.

use std::ops::Range;

use super::line::Line;
use crate::framework::Framework;

/// A program that is recognised on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Whose arguments they are.
    pub framework: Framework,
    /// The positions of the program's own arguments: behind the script, before a lone `--`.
    pub arguments: Range<usize>,
    /// The positions of the options of `accelerate launch`, where that starts the program.
    pub accelerate: Option<Range<usize>>,
    /// Whether a launcher of several processes starts it, be it only one.
    pub is_distributed: bool,
}

/// A launcher that runs a script: its options come before the script.
struct Launcher {
    name: &'static str,
    /// The subcommand that must follow, for example `launch`.
    subcommand: Option<&'static str>,
    /// Options that take no value; all others do, unless they are written with `=`.
    switches: &'static [&'static str],
    /// Options behind which a module's name takes the script's place.
    modules: &'static [&'static str],
}

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        name: "torchrun",
        subcommand: None,
        switches: &["--standalone", "--no-python", "--no_python", "--run-path", "--run_path"],
        modules: &["-m", "--module"],
    },
    Launcher {
        name: "accelerate",
        subcommand: Some("launch"),
        switches: &[
            "--multi_gpu",
            "--multi-gpu",
            "--cpu",
            "--use_deepspeed",
            "--use_fsdp",
            "--use_megatron_lm",
            "--quiet",
            "-q",
            "--debug",
            "--no_python",
            "--same_network",
            "--tpu",
            "--use_mps_device",
            "--enable_cpu_affinity",
        ],
        modules: &["-m", "--module"],
    },
    Launcher {
        name: "deepspeed",
        subcommand: None,
        switches: &["--no_python", "--no_local_rank", "--force_multi", "--save_pid", "--elastic_training", "--no_ssh"],
        modules: &["--module"],
    },
    Launcher { name: "tune", subcommand: Some("run"), switches: &["--standalone"], modules: &[] },
    Launcher {
        name: "uv",
        subcommand: Some("run"),
        switches: &["--no-sync", "--frozen", "--locked", "-q"],
        modules: &["-m"],
    },
    Launcher { name: "poetry", subcommand: Some("run"), switches: &[], modules: &[] },
    Launcher { name: "pixi", subcommand: Some("run"), switches: &[], modules: &[] },
    Launcher {
        name: "conda",
        subcommand: Some("run"),
        switches: &["--no-capture-output", "--live-stream", "-v"],
        modules: &[],
    },
    Launcher { name: "srun", subcommand: None, switches: &["--exclusive", "--unbuffered", "-u", "-l"], modules: &[] },
    Launcher { name: "mpirun", subcommand: None, switches: &["--allow-run-as-root"], modules: &[] },
    Launcher { name: "nice", subcommand: None, switches: &[], modules: &[] },
    Launcher { name: "numactl", subcommand: None, switches: &["--localalloc", "-l"], modules: &[] },
    Launcher { name: "env", subcommand: None, switches: &["-i"], modules: &[] },
    Launcher { name: "nohup", subcommand: None, switches: &[], modules: &[] },
    Launcher { name: "time", subcommand: None, switches: &["-v", "-p"], modules: &[] },
    Launcher { name: "exec", subcommand: None, switches: &[], modules: &[] },
    Launcher { name: "stdbuf", subcommand: None, switches: &["-oL", "-eL", "-o0", "-e0"], modules: &[] },
];

/// Python modules that stand for a launcher or a program.
const MODULES: &[(&str, Start)] = &[
    ("torch.distributed.run", Start::Launcher("torchrun")),
    ("torch.distributed.launch", Start::Launcher("torchrun")),
    ("accelerate.commands.launch", Start::Launcher("accelerate")),
    ("deepspeed.launcher.runner", Start::Launcher("deepspeed")),
    ("vllm.entrypoints", Start::Program(Framework::Vllm)),
    ("sglang.launch_server", Start::Program(Framework::Sglang)),
    ("sglang.bench", Start::Program(Framework::Sglang)),
    ("axolotl.cli.train", Start::Program(Framework::Axolotl)),
    ("llamafactory.cli", Start::Program(Framework::LlamaFactory)),
    ("fairseq_cli.train", Start::Program(Framework::Fairseq)),
    ("whisper", Start::Program(Framework::Whisper)),
];

/// Programs with a name of their own, and the subcommand that they need.
const COMMANDS: &[(&str, &[&str], Framework)] = &[
    ("vllm", &["serve", "bench"], Framework::Vllm),
    ("sglang", &["serve"], Framework::Sglang),
    ("text-generation-launcher", &[], Framework::Tgi),
    ("trtllm-serve", &[], Framework::TensorrtLlm),
    ("tritonserver", &[], Framework::TritonServer),
    ("llama-server", &[], Framework::LlamaCpp),
    ("llama-cli", &[], Framework::LlamaCpp),
    ("llama-completion", &[], Framework::LlamaCpp),
    ("llama-simple", &[], Framework::LlamaCpp),
    ("llama-embedding", &[], Framework::LlamaCpp),
    ("llama-batched-bench", &[], Framework::LlamaCpp),
    ("llama", &["serve", "cli", "completion"], Framework::LlamaCpp),
    ("llama-bench", &[], Framework::LlamaCpp),
    ("llama-perplexity", &[], Framework::LlamaCpp),
    ("whisper-cli", &[], Framework::WhisperCpp),
    ("whisper", &[], Framework::Whisper),
    ("axolotl", &["train"], Framework::Axolotl),
    ("llamafactory-cli", &["train"], Framework::LlamaFactory),
    ("trl", &["sft", "dpo", "grpo", "kto", "reward", "rloo"], Framework::Trl),
    ("yolo", &[], Framework::Ultralytics),
    ("fairseq-train", &[], Framework::Fairseq),
    ("webui.sh", &[], Framework::Automatic1111),
    ("webui.bat", &[], Framework::Automatic1111),
    ("comfy", &["launch"], Framework::Comfyui),
];

/// Scripts by the beginning of their name; the first that fits decides, so exact names come before shorter beginnings.
const SCRIPTS: &[(&str, Framework)] = &[
    ("run_", Framework::Transformers),
    ("sft", Framework::Trl),
    ("dpo", Framework::Trl),
    ("grpo", Framework::Trl),
    ("kto", Framework::Trl),
    ("reward_modeling", Framework::Trl),
    ("train_network", Framework::Kohya),
    ("train_net", Framework::Detectron2),
    ("plain_train_net", Framework::Detectron2),
    ("train_db", Framework::Kohya),
    ("fine_tune", Framework::Kohya),
    ("sdxl_train", Framework::Kohya),
    ("flux_train", Framework::Kohya),
    ("sd3_train", Framework::Kohya),
    ("train_textual_inversion", Framework::Kohya),
    ("train_dreambooth", Framework::DiffusersScripts),
    ("train_text_to_image", Framework::DiffusersScripts),
    ("train_controlnet", Framework::DiffusersScripts),
    ("train_instruct_pix2pix", Framework::DiffusersScripts),
    ("train_unconditional", Framework::DiffusersScripts),
    ("textual_inversion", Framework::DiffusersScripts),
    ("pretrain_", Framework::Megatron),
    ("webui", Framework::Automatic1111),
    ("launch", Framework::Automatic1111),
];

/// What the scripts of a library import, for those whose name a script of the user's own may have too.
const IMPORTS: &[(Framework, &[&str])] = &[
    (Framework::Transformers, &["transformers"]),
    (Framework::Trl, &["trl"]),
    (Framework::Kohya, &["library", "train_network", "sdxl_train_network", "kohya_ss"]),
    (Framework::Detectron2, &["detectron2"]),
    (Framework::DiffusersScripts, &["diffusers"]),
    (Framework::Megatron, &["megatron"]),
    (Framework::Automatic1111, &["modules"]),
    (Framework::Forge, &["modules"]),
    (Framework::Timm, &["timm"]),
];

/// Scripts whose name says little, by a flag that only one kind of program has.
const TELLING_FLAGS: &[(&str, Framework)] = &[
    ("--per_device_train_batch_size", Framework::Transformers),
    ("--per_gpu_train_batch_size", Framework::Transformers),
    ("--pretrained_model_name_or_path", Framework::DiffusersScripts),
    ("--micro-batch-size", Framework::Megatron),
    ("--validation-batch-size", Framework::Timm),
    ("--amp-dtype", Framework::Timm),
    ("--grad-accum-steps", Framework::Timm),
];

#[derive(Clone, Copy)]
enum Start {
    Launcher(&'static str),
    Program(Framework),
}

/// The last part of a path, without `.exe`.
fn base_name(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    name.strip_suffix(".exe").unwrap_or(name)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn is_python(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Who starts several processes, by the words that start it.
const DISTRIBUTED: &[&str] = &[
    "torchrun",
    "deepspeed",
    "accelerate",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
];

/// The program that a command line starts, where it is one whose arguments are known.
pub fn program(line: &Line) -> Option<Program> {
    let words = &line.words;
    let mut at = 0;
    let mut accelerate = None;
    let found = |framework, first: usize, accelerate: Option<Range<usize>>| {
        let end = words[first..].iter().position(|word| word == "--").map_or(words.len(), |length| first + length);
        let is_distributed = words[..first].iter().any(|word| DISTRIBUTED.contains(&base_name(word)));
        Some(Program { framework, arguments: first..end, accelerate, is_distributed })
    };
    // Every turn passes at least one word, so a line of launchers ends.
    while at < words.len() {
        let word = words[at].as_str();
        let name = base_name(word);
        if is_assignment(word) {
            at += 1;
        } else if is_python(name) {
            match after_python(line, at + 1)? {
                Next::At(next) => at = next,
                Next::Program(framework, first) => return found(framework, first, accelerate),
            }
        } else if let Some(launcher) = launcher(name, words.get(at + 1)) {
            let options = at + 1 + usize::from(launcher.subcommand.is_some());
            let next = after_launcher(line, options, launcher)?;
            if launcher.name == "accelerate" {
                let end = match next {
                    Next::At(next) => next,
                    // Before `-m` and the module's name.
                    Next::Program(_, first) => first.saturating_sub(2).max(options),
                };
                accelerate = Some(options..end);
            }
            match next {
                Next::At(next) => at = next,
                Next::Program(framework, first) => return found(framework, first, accelerate),
            }
        } else {
            let (framework, first) = named(line, at)?;
            return found(framework, first, accelerate);
        }
    }
    None
}

enum Next {
    At(usize),
    Program(Framework, usize),
}

fn launcher(name: &str, next: Option<&String>) -> Option<&'static Launcher> {
    LAUNCHERS.iter().find(|known| {
        known.name == name && known.subcommand.is_none_or(|wanted| next.is_some_and(|next| next == wanted))
    })
}

fn after_python(line: &Line, mut at: usize) -> Option<Next> {
    let words = &line.words;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "-m" => return module(line, at + 1),
            "-c" => return None,
            "-X" | "-W" => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => return Some(Next::At(at)),
        }
    }
    None
}

fn module(line: &Line, at: usize) -> Option<Next> {
    let words = &line.words;
    let name = words.get(at)?;
    let start = MODULES
        .iter()
        .find(|(prefix, _)| name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
    match start {
        Some((_, Start::Program(framework))) => Some(Next::Program(*framework, at + 1)),
        Some((_, Start::Launcher(name))) => {
            let launcher = LAUNCHERS.iter().find(|known| known.name == *name)?;
            after_launcher(line, at + 1, launcher)
        }
        None => {
            // A module of the user's own is named like a script.
            let stem = name.rsplit('.').next().unwrap_or(name);
            script(stem, name, at + 1, line).map(|framework| Next::Program(framework, at + 1))
        }
    }
}

fn after_launcher(line: &Line, mut at: usize, launcher: &Launcher) -> Option<Next> {
    let words = &line.words;
    while let Some(word) = words.get(at) {
        let word = word.as_str();
        if launcher.modules.contains(&word) {
            return module(line, at + 1);
        }
        if word == "--" {
            return Some(Next::At(at + 1));
        }
        if !word.starts_with('-') || word == "-" {
            return Some(Next::At(at));
        }
        at += if launcher.switches.contains(&word) || word.contains('=') { 1 } else { 2 };
    }
    None
}

fn named(line: &Line, at: usize) -> Option<(Framework, usize)> {
    let words = &line.words;
    let word = words[at].as_str();
    let name = base_name(word);
    if let Some((_, subcommands, framework)) = COMMANDS.iter().find(|(command, ..)| *command == name) {
        if subcommands.is_empty() {
            return Some((*framework, at + 1));
        }
        let subcommand = words.get(at + 1)?;
        return subcommands.contains(&subcommand.as_str()).then_some((*framework, at + 2));
    }
    // torchtune's recipes are named without an ending, and only behind `tune run`.
    let behind_tune = words[..at].windows(2).any(|pair| base_name(&pair[0]) == "tune" && pair[1] == "run");
    if behind_tune {
        return Some((Framework::Torchtune, at + 1));
    }
    let stem = name.strip_suffix(".py")?;
    script(stem, word, at + 1, line).map(|framework| (framework, at + 1))
}

/// Whose script this is, by its name, and by what follows from the word at `first` on.
fn script(stem: &str, path: &str, first: usize, line: &Line) -> Option<Framework> {
    let arguments = &line.words[first..];
    let path = path.to_lowercase();
    if path.contains("comfyui") {
        return Some(Framework::Comfyui);
    }
    if path.contains("vqgan") && stem == "generate" {
        return Some(Framework::VqganClip);
    }
    if path.contains("pytorch-image-models") && stem == "train" {
        return Some(Framework::Timm);
    }
    let by_name = SCRIPTS.iter().find(|(prefix, _)| stem.starts_with(prefix)).map(|&(_, framework)| framework);
    let found = match by_name {
        Some(Framework::Automatic1111) if path.contains("forge") => Some(Framework::Forge),
        Some(framework) => Some(framework),
        None => TELLING_FLAGS
            .iter()
            .find(|(flag, _)| {
                arguments.iter().any(|word| word.split('=').next() == Some(flag))
                    || only_file_has(flag, arguments, line)
            })
            .map(|&(_, framework)| framework),
    };
    let modules = |framework: &Framework| IMPORTS.iter().find(|(known, _)| known == framework).map(|(_, names)| *names);
    found.filter(|framework| modules(framework).is_none_or(|modules| line.may_import(modules)))
}

/// Whether the only argument is a file that sets this flag.
fn only_file_has(flag: &str, arguments: &[String], line: &Line) -> bool {
    let [only] = arguments else { return false };
    line.document(only).is_some_and(|document| document.keys().any(|key| key == flag.trim_start_matches('-')))
}

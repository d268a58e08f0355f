//! Remedies placed in scripts that serve a language model by vLLM or llama.cpp.

use std::path::Path;

use oomph_edit::{Amount, Facts, Placed, With8Bits};

use super::{SCRIPT, program};

const LLAMA: &str = "\
import argparse
from llama_cpp import Llama
parser = argparse.ArgumentParser()
parser.add_argument('--ctx', type=int, default=32768)
args = parser.parse_args()
llm = Llama(model_path='m.gguf', n_gpu_layers=-1, n_ctx=args.ctx)
";

/// The edits of a server's script where this much of its settings fits.
fn serving(text: &str, arguments: &[&str], remedy: &str) -> Result<Placed, String> {
    serving_by(text, arguments, remedy, None)
}

fn serving_by(text: &str, arguments: &[&str], remedy: &str, by: Option<u64>) -> Result<Placed, String> {
    let facts = Facts {
        context_that_fits: Some(9216),
        context_with_8_bits: With8Bits { cache: Some(18_432), weights: Some(12_288) },
        layers_that_fit: Some(26),
        cards: 1,
        lower_shares: [(5, 0.69)].into(),
        ..Facts::default()
    };
    program(text, arguments).apply(remedy, Amount { by }, &facts).map_err(|error| error.to_string())
}

#[test]
fn pieces_of_a_prompt_are_smaller_by_the_amount_and_never_larger_than_they_were() {
    let script = |given: &str| format!("from vllm import LLM\nllm = LLM('org/model'{given})\n");
    let line = |given: &str, by: u64| {
        let placed = serving_by(&script(given), &[], "chunked-processing", Some(by)).ok()?;
        placed.program.text(Path::new(SCRIPT))?.lines().last().map(str::to_owned)
    };
    assert!(line("", 1).unwrap().ends_with("max_num_batched_tokens=2048)"));
    assert!(line(", max_num_batched_tokens=32768", 4).unwrap().ends_with("max_num_batched_tokens=512)"));
    assert!(line(", max_num_batched_tokens=1024", 4).unwrap().ends_with("max_num_batched_tokens=512)"));
    assert!(line(", max_num_batched_tokens=1024", 1).is_none(), "2,048 are more");
}

#[test]
fn the_context_that_fits_is_longer_where_something_is_in_8_bits() {
    let length = |given: &str| {
        let script = format!("from vllm import LLM\nllm = LLM('org/model', max_model_len=32_768{given})\n");
        let placed = serving(&script, &[], "shorter-context").unwrap();
        let line = placed.program.text(Path::new(SCRIPT)).unwrap().lines().last().unwrap().to_owned();
        line.split("max_model_len=").nth(1).unwrap().split([',', ')']).next().unwrap().to_owned()
    };
    assert_eq!(length(""), "9216");
    assert_eq!(length(", quantization='fp8'"), "12288");
    assert_eq!(length(", kv_cache_dtype='fp8'"), "18432");
}

#[test]
fn a_training_loop_with_an_engine_gets_what_trainings_get() {
    let script = "import torch\nfrom vllm import LLM\nmodel = torch.nn.Linear(8, 8).cuda()\n\
                  optimizer = torch.optim.AdamW(model.parameters())\nllm = LLM('org/model')\n";
    let trains = format!(
        "{script}for step in range(9):\n    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n"
    );
    let refusal = |text: &str| serving(text, &[], "fused-optimizer").err().unwrap_or_default();
    assert!(refusal(script).contains("not written into code of this framework"));
    assert!(!refusal(&trains).contains("not written into code of this framework"));
    assert!(serving(&trains, &[], "lower-utilization").is_ok(), "the engine's own is there, too");
}

#[test]
fn llama_cpp_gets_the_context_and_the_layers_that_fit() {
    let (library, values) = program(LLAMA, &["--ctx", "16384"]).served().unwrap();
    assert_eq!(library, "llama_cpp");
    let of = |name: &str| values.get(name).map(String::as_str);
    assert_eq!((of("model_path"), of("n_gpu_layers"), of("n_ctx")), (Some("m.gguf"), Some("-1"), Some("16384")));
    assert_eq!(serving(LLAMA, &[], "shorter-context").unwrap().program.arguments(), ["--ctx", "9216"]);
    let text = |remedy: &str| {
        let placed = serving(LLAMA, &[], remedy).unwrap();
        placed.program.text(Path::new(SCRIPT)).unwrap().to_owned()
    };
    assert!(text("fewer-gpu-layers").contains("n_gpu_layers=26, n_ctx=args.ctx)"));
    assert!(text("kv-cache-dtype").contains("n_ctx=args.ctx, flash_attn=True, type_k=8, type_v=8)"));
    assert!(serving(LLAMA, &[], "autocast").is_err());
    let on_cpu = "from llama_cpp import Llama\nllm = Llama('m.gguf')\n";
    assert!(serving(on_cpu, &[], "fewer-gpu-layers").is_err(), "no layer is on the card");
}

#[test]
fn vllm_scripts_get_its_own_arguments() {
    let script = "from transformers import AutoTokenizer\nfrom vllm import LLM\n\
                  llm = LLM('org/model', max_model_len=32_768, gpu_memory_utilization=0.9)\n";
    let (library, values) = program(script, &[]).served().unwrap();
    assert_eq!((library, values["model"].as_str()), ("vllm", "org/model"));
    let text = |remedy: &str| {
        let placed = serving(script, &[], remedy).unwrap();
        placed.program.text(Path::new(SCRIPT)).unwrap().lines().last().unwrap().to_owned()
    };
    assert_eq!(text("shorter-context"), "llm = LLM('org/model', max_model_len=9216, gpu_memory_utilization=0.9)");
    assert!(text("lower-utilization").ends_with("gpu_memory_utilization=0.69)"), "{}", text("lower-utilization"));
    assert!(text("fewer-sequences").ends_with("gpu_memory_utilization=0.9, max_num_seqs=128)"));
    assert!(text("enforce-eager").ends_with(", enforce_eager=True)"));
    assert!(serving(script, &[], "tensor-parallel").is_err(), "there is one card");
    assert!(program("class LLM: pass\nllm = LLM('x')\n", &[]).served().is_none());
}

/// The lines that a remedy puts into a script, or why it does not.
fn added(text: &str, remedy: &str) -> Result<Vec<String>, String> {
    let placed = serving(text, &["m.gguf"], remedy)?;
    let patch = placed.program.patch_since(&program(text, &["m.gguf"]), Path::new("/p"));
    let lines = patch.lines().filter_map(|line| line.strip_prefix('+')).filter(|line| !line.starts_with("++"));
    Ok(lines.map(|line| line.trim().to_owned()).collect())
}

const STRUCTURES: &str = "\
import sys
from cyllama.llama import llama_cpp
def load(path):
    wanted = llama_cpp.LlamaModelParams()
    wanted.n_gpu_layers = 99
    return llama_cpp.LlamaModel(path, wanted)
model = load(sys.argv[1])
wishes = llama_cpp.LlamaContextParams()
wishes.n_ctx = wishes.n_batch = 16384
context = llama_cpp.LlamaContext(model, wishes)
";

#[test]
fn structures_of_llama_cpp_get_their_settings_as_attributes() {
    let (library, values) = program(STRUCTURES, &["m.gguf"]).served().unwrap();
    let of = |name: &str| values.get(name).map(String::as_str);
    assert_eq!(
        (library, of("model"), of("n_gpu_layers"), of("n_ctx")),
        ("cyllama", Some("m.gguf"), Some("99"), Some("16384"))
    );
    assert_eq!(added(STRUCTURES, "fewer-gpu-layers").unwrap(), ["wanted.n_gpu_layers = 26"]);
    assert_eq!(added(STRUCTURES, "kv-cache-dtype").unwrap(), ["wishes.type_k = 8", "wishes.type_v = 8"]);
    assert_eq!(added(STRUCTURES, "kv-cache-offload").unwrap(), ["wishes.offload_kqv = False"]);
    assert_eq!(added(STRUCTURES, "smaller-compute-buffer").unwrap(), ["wishes.n_ubatch = 128"]);
    // The batch has the same value, and stays.
    assert_eq!(added(STRUCTURES, "shorter-context").unwrap(), ["wishes.n_ctx = 9216"]);
    assert!(added(STRUCTURES, "flash-attention").is_err(), "llama.cpp takes it where it can");
    let off = STRUCTURES.replace("wishes.n_ctx = ", "wishes.flash_attn_type = 0\nwishes.n_ctx = ");
    assert_eq!(added(&off, "flash-attention").unwrap(), ["wishes.flash_attn_type = 1"]);
}

#[test]
fn an_option_that_says_several_settings_is_not_set_for_one() {
    let text = "import argparse\nfrom cyllama.llama import llama_cpp\np = argparse.ArgumentParser()\n\
                p.add_argument('--n', type=int, default=4096)\na = p.parse_args()\n\
                w = llama_cpp.LlamaContextParams()\nw.n_ctx = a.n\nw.n_ubatch = a.n\n";
    assert_eq!(added(text, "smaller-compute-buffer").unwrap(), ["w.n_ubatch = 128"]);
    let alone = text.replace("w.n_ctx = a.n\n", "");
    let placed = serving(&alone, &[], "smaller-compute-buffer").unwrap();
    assert_eq!(placed.program.arguments(), ["--n", "128"]);
}

#[test]
fn engines_of_cyllama_get_what_their_classes_take() {
    let text = "from cyllama import LLM\nllm = LLM('m.gguf', n_ctx=16384)\n";
    let (library, values) = program(text, &[]).served().unwrap();
    assert_eq!((library, values["model"].as_str(), values["n_gpu_layers"].as_str()), ("cyllama", "m.gguf", "-1"));
    assert_eq!(added(text, "fewer-gpu-layers").unwrap(), ["llm = LLM('m.gguf', n_ctx=16384, n_gpu_layers=26)"]);
    assert_eq!(added(text, "smaller-compute-buffer").unwrap(), ["llm = LLM('m.gguf', n_ctx=16384, n_batch=128)"]);
    assert!(added(text, "kv-cache-dtype").is_err(), "the class has no argument for it");
    let config = "from cyllama import LLM, GenerationConfig\nc = GenerationConfig(n_ctx=16384, n_gpu_layers=-1)\n\
                  llm = LLM('m.gguf', config=c)\n";
    assert_eq!(added(config, "fewer-gpu-layers").unwrap(), ["c = GenerationConfig(n_ctx=16384, n_gpu_layers=26)"]);
    let by_place = config.replace("config=c", "c");
    assert_eq!(added(&by_place, "fewer-gpu-layers").unwrap(), ["c = GenerationConfig(n_ctx=16384, n_gpu_layers=26)"]);
    let sampling = "from cyllama import LLM, GenerationConfig\nc = GenerationConfig(max_tokens=8)\n\
                    llm = LLM('m.gguf', config=c)\n";
    assert_eq!(added(sampling, "fewer-gpu-layers").unwrap(), ["llm = LLM('m.gguf', config=c, n_gpu_layers=26)"]);
}

#[test]
fn layers_that_a_program_does_not_count_are_a_size_of_each_engine() {
    let text = "from cyllama import LLM\na = LLM('a.gguf', n_ctx=8192)\nb = LLM('b.gguf', n_gpu_layers=-1)\n";
    let before = program(text, &[]);
    assert!(before.served().is_none(), "there are two");
    let sizes = before.sizes();
    let layers: Vec<_> = sizes.iter().filter(|size| size.is_of("fewer-gpu-layers")).collect();
    let with = |place: usize| {
        let edited = before.with_size(layers[place], 20).unwrap();
        edited.text(Path::new(SCRIPT)).unwrap().to_owned()
    };
    assert_eq!(layers.len(), 2);
    assert!(with(0).contains("b = LLM('b.gguf', n_gpu_layers=20)"));
    assert!(with(1).contains("a = LLM('a.gguf', n_ctx=8192, n_gpu_layers=20)"));
}

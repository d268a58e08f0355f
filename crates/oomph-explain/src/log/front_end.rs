//! The program around a library, told by its traces in a log.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// What a program leaves in a log, the outermost programs first: an application hides the libraries that it is made of.
const TRACES: &[(&str, &[&str])] = &[
    (
        "comfyui",
        &[
            "ComfyUI",
            "comfyui",
            "/comfy/",
            "comfy_extras",
            "!!! Exception during processing",
            "Prompt executed in",
            "Got an OOM, unloading",
            "Error during sampling",
        ],
    ),
    ("forge", &["stable-diffusion-webui-forge", "modules_forge", "forge_main_entry"]),
    (
        "automatic1111",
        &[
            "stable-diffusion-webui",
            "webui.py",
            "Torch active/reserved",
            "modules.devices",
            "modules/processing.py",
            "sd_hijack",
        ],
    ),
    ("invokeai", &["invokeai", "InvokeAI"]),
    ("kohya", &["sd-scripts", "kohya_ss", "train_network.py", "sdxl_train"]),
    ("vllm", &["vllm", "vLLM", "EngineCore", "VllmWorker"]),
    ("sglang", &["sglang", "--mem-fraction-static", "sgl-workspace"]),
    ("tgi", &["text_generation_launcher", "text_generation_server", "text-generation-launcher"]),
    ("tensorrt-llm", &["[TRT-LLM]", "TensorRT-LLM", "tensorrt_llm"]),
    ("tensorrt", &["[TRT]", "nvinfer"]),
    ("triton-server", &["tritonserver", "triton-inference-server", "TRITONBACKEND"]),
    ("exllama", &["exllama"]),
    ("llama-factory", &["llamafactory", "LLaMA-Factory"]),
    ("axolotl", &["axolotl"]),
    ("torchtune", &["torchtune"]),
    ("unsloth", &["unsloth", "Unsloth"]),
    ("megatron", &["megatron", "Megatron"]),
    ("fairseq", &["fairseq"]),
    ("detectron2", &["detectron2"]),
    ("ultralytics", &["ultralytics", "TaskAlignedAssigner", "yolov5", "yolov8"]),
    ("burn", &["cubecl"]),
    ("oneflow", &["oneflow"]),
    ("vqgan-clip", &["vqgan", "VQGAN"]),
    ("ollama", &["ollama", "llama runner"]),
    ("koboldcpp", &["koboldcpp", "KoboldCpp"]),
    ("ik_llama.cpp", &["ik_llama", "mla_attn", "pipeline parallelism enabled (n_copies"]),
    ("stable-diffusion.cpp", &["stable-diffusion.cpp", "ggml_extend.hpp", "sd-cli", "sd-server"]),
    ("whisper.cpp", &["whisper_", "whisper.cpp", "whisper-cli"]),
    ("faster-whisper", &["faster_whisper", "faster-whisper", "ctranslate2"]),
    ("hami", &["HAMi-core", "libvgpu.c"]),
    ("deepspeed", &["deepspeed", "DeepSpeed", "[launch.py:"]),
    ("fsdp", &["fully_sharded_data_parallel", "torch/distributed/fsdp", "_flat_param"]),
    ("lightning", &["pytorch_lightning", "lightning/pytorch", "lightning.pytorch"]),
    ("trl", &["/trl/"]),
    ("peft", &["/peft/"]),
    ("diffusers", &["/diffusers/", "diffusers."]),
    ("whisper", &["/whisper/"]),
    ("timm", &["/timm/"]),
    ("transformers", &["/transformers/", "transformers."]),
    ("accelerate", &["/accelerate/"]),
    ("cupy", &["cupy"]),
    ("keras", &["/keras/"]),
];

static FINDER: LazyLock<Option<(AhoCorasick, Vec<usize>)>> = LazyLock::new(|| {
    let mut words = Vec::new();
    let mut owners = Vec::new();
    for (owner, (_, traces)) in TRACES.iter().enumerate() {
        for trace in *traces {
            words.push(*trace);
            owners.push(owner);
        }
    }
    Some((AhoCorasick::new(words).ok()?, owners))
});

/// The first of the libraries above, which many programs are made of and whose warnings stand in many logs.
const FIRST_LIBRARY: &str = "deepspeed";

/// The outermost program that the text behind a failure shows, or that before it; an application rather than a library.
pub(crate) fn around(behind: &[u8], before: &[u8], library: &str) -> Option<&'static str> {
    let first_library = TRACES.iter().position(|(name, _)| *name == FIRST_LIBRARY).unwrap_or(TRACES.len());
    let is_application = |name: &&str| TRACES[..first_library].iter().any(|(known, _)| known == name);
    let found = [of(behind, library), of(before, library)];
    let mut found = found.into_iter().flatten();
    let first = found.next()?;
    Some(if is_application(&first) { first } else { found.find(is_application).unwrap_or(first) })
}

/// The outermost program that a text shows, other than the library itself.
fn of(text: &[u8], library: &str) -> Option<&'static str> {
    let (finder, owners) = FINDER.as_ref()?;
    let mut best: Option<usize> = None;
    for hit in finder.find_overlapping_iter(text) {
        let owner = owners[hit.pattern().as_usize()];
        if TRACES[owner].0 != library && best.is_none_or(|best| owner < best) {
            best = Some(owner);
            if owner == 0 {
                break;
            }
        }
    }
    best.map(|owner| TRACES[owner].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_before_a_failure_outranks_a_library_behind_it() {
        let (webui, warning) =
            (b"sd_hijack.py, line 12".as_slice(), b"site-packages/timm/layers: FutureWarning".as_slice());
        assert_eq!(around(warning, webui, "pytorch"), Some("automatic1111"));
        assert_eq!(around(webui, warning, "pytorch"), Some("automatic1111"));
        assert_eq!(around(warning, b"", "pytorch"), Some("timm"));
        assert_eq!(around(b"vllm", webui, "pytorch"), Some("vllm"), "of two applications the one behind");
        assert_eq!(around(b"", b"nothing known", "pytorch"), None);
    }
}

//! Writes a plan as settings of frameworks, ready to paste.

use std::fmt::Write;

use oomph_plan::{Offloading, Optimizer, Precision, Workload};

use crate::cli::ConfigArg;

/// The settings of one framework.
pub fn settings(framework: ConfigArg, model: &str, workload: &Workload) -> String {
    match framework {
        ConfigArg::Trainer => trainer(workload),
        ConfigArg::Accelerate => accelerate(workload),
        ConfigArg::Deepspeed => deepspeed(workload),
        ConfigArg::Bnb => bitsandbytes(workload),
        ConfigArg::LlamaCpp => llama_cpp(model, workload),
        ConfigArg::Vllm => vllm(model, workload),
        ConfigArg::Diffusers => diffusers(workload),
        ConfigArg::A1111 => a1111(workload),
        ConfigArg::Comfyui => comfyui(workload),
    }
}

/// The name that Trainer's `optim` has for an optimizer.
pub fn trainer_optimizer(optimizer: Optimizer) -> &'static str {
    match optimizer {
        Optimizer::AdamwFused | Optimizer::Muon => "adamw_torch_fused",
        Optimizer::AdamwForeach => "adamw_torch",
        Optimizer::Adamw8bit => "adamw_bnb_8bit",
        Optimizer::PagedAdamw8bit => "paged_adamw_8bit",
        Optimizer::Adamw4bit => "adamw_torch_4bit",
        Optimizer::Adafactor => "adafactor",
        Optimizer::Sgd | Optimizer::SgdMomentum => "sgd",
        Optimizer::Lion => "lion_32bit",
        Optimizer::Lion8bit => "lion_8bit",
        Optimizer::Galore => "galore_adamw",
    }
}

fn python(yes: bool) -> &'static str {
    if yes { "True" } else { "False" }
}

fn trainer(workload: &Workload) -> String {
    format!(
        "TrainingArguments(\n    per_device_train_batch_size={},\n    gradient_accumulation_steps={},\n    \
         gradient_checkpointing={},\n    bf16={},\n    fp16={},\n    optim=\"{}\",\n)\n",
        workload.batch,
        workload.accumulation,
        python(workload.checkpointing),
        python(workload.precision == Precision::AmpBf16),
        python(workload.precision == Precision::AmpFp16),
        trainer_optimizer(workload.optimizer),
    )
}

fn mixed(workload: &Workload) -> &'static str {
    match workload.precision {
        Precision::AmpBf16 => "bf16",
        Precision::AmpFp16 => "fp16",
        _ => "no",
    }
}

fn accelerate(workload: &Workload) -> String {
    let parallel = workload.parallel;
    let mut text = format!(
        "compute_environment: LOCAL_MACHINE\nmixed_precision: '{}'\nnum_machines: 1\nnum_processes: {}\n",
        mixed(workload),
        parallel.gpus
    );
    if parallel.zero > 0 {
        let place = |offload: bool| if offload { "cpu" } else { "none" };
        let _ = write!(
            text,
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: {}\n  gradient_accumulation_steps: {}\n  \
             offload_optimizer_device: {}\n  offload_param_device: {}\n",
            parallel.zero,
            workload.accumulation,
            place(parallel.offload_optimizer),
            place(parallel.offload_weights),
        );
    } else if parallel.gpus > 1 {
        text.push_str("distributed_type: MULTI_GPU\n");
    } else {
        text.push_str("distributed_type: 'NO'\n");
    }
    text
}

fn deepspeed(workload: &Workload) -> String {
    let parallel = workload.parallel;
    let mut zero = serde_json::json!({ "stage": parallel.zero });
    if parallel.offload_optimizer {
        zero["offload_optimizer"] = serde_json::json!({ "device": "cpu", "pin_memory": true });
    }
    if parallel.offload_weights {
        zero["offload_param"] = serde_json::json!({ "device": "cpu", "pin_memory": true });
    }
    let bf16 = matches!(workload.precision, Precision::AmpBf16 | Precision::Bf16);
    let document = serde_json::json!({
        "train_micro_batch_size_per_gpu": workload.batch,
        "gradient_accumulation_steps": workload.accumulation,
        "bf16": { "enabled": bf16 },
        "fp16": { "enabled": workload.precision == Precision::AmpFp16 },
        "zero_optimization": zero,
    });
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn bitsandbytes(workload: &Workload) -> String {
    if workload.precision == Precision::Int8 {
        return "BitsAndBytesConfig(load_in_8bit=True)\n".into();
    }
    format!(
        "BitsAndBytesConfig(\n    load_in_4bit=True,\n    bnb_4bit_quant_type=\"nf4\",\n    \
         bnb_4bit_use_double_quant={},\n    bnb_4bit_compute_dtype=torch.bfloat16,\n)\n",
        python(workload.double_quantization)
    )
}

fn quoted(model: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
    if model.chars().all(plain) { model.to_owned() } else { format!("'{}'", model.replace('\'', "'\\''")) }
}

fn llama_cpp(model: &str, workload: &Workload) -> String {
    // The context is that of all slots together.
    let context = workload.length.saturating_add(workload.new_tokens).saturating_mul(workload.batch);
    let mut text = format!("llama-server -m {} -c {context} -ngl 999", quoted(model));
    if workload.batch > 1 {
        let _ = write!(text, " -np {}", workload.batch);
    }
    let cache = if workload.cache_bytes < 1.0 { "q4_0" } else { "q8_0" };
    if workload.cache_bytes < 2.0 {
        let _ = write!(text, " -fa on -ctk {cache} -ctv {cache}");
    }
    text + "\n"
}

fn vllm(model: &str, workload: &Workload) -> String {
    let mut text = format!(
        "vllm serve {} --max-model-len {} --max-num-seqs {}",
        quoted(model),
        workload.length.saturating_add(workload.new_tokens),
        workload.batch
    );
    if workload.parallel.tensor > 1 {
        let _ = write!(text, " --tensor-parallel-size {}", workload.parallel.tensor);
    }
    if workload.cache_bytes < 2.0 {
        text.push_str(" --kv-cache-dtype fp8");
    }
    text + "\n"
}

fn diffusers(workload: &Workload) -> String {
    let image = workload.image;
    let mut text = String::new();
    text.push_str(match image.offload {
        Offloading::None => "pipe.to(\"cuda\")\n",
        Offloading::Model => "pipe.enable_model_cpu_offload()\n",
        Offloading::Sequential => "pipe.enable_sequential_cpu_offload()\n",
    });
    if image.slicing {
        text.push_str("pipe.vae.enable_slicing()\n");
    }
    if image.tiling {
        text.push_str("pipe.vae.enable_tiling()\n");
    }
    let _ = writeln!(
        text,
        "pipe(prompt, width={}, height={}, num_images_per_prompt={})",
        image.width, image.height, workload.batch
    );
    text
}

fn a1111(workload: &Workload) -> String {
    let flags = match workload.image.offload {
        Offloading::None => "--opt-sdp-attention",
        Offloading::Model => "--medvram --opt-sdp-attention",
        Offloading::Sequential => "--lowvram --opt-sdp-attention",
    };
    format!("COMMANDLINE_ARGS={flags}\n")
}

fn comfyui(workload: &Workload) -> String {
    let flag = match workload.image.offload {
        Offloading::None => "",
        Offloading::Model => " --lowvram",
        Offloading::Sequential => " --novram",
    };
    format!("python main.py{flag}\n")
}

#[cfg(test)]
mod tests {
    use oomph_plan::Task;

    use super::*;

    #[test]
    fn deepspeed_settings_are_json_with_the_stage() {
        let mut workload = Workload { task: Task::Full, precision: Precision::AmpBf16, ..Workload::default() };
        workload.parallel.zero = 3;
        workload.parallel.offload_optimizer = true;
        let text = settings(ConfigArg::Deepspeed, "m", &workload);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["zero_optimization"]["stage"], 3);
        assert_eq!(value["zero_optimization"]["offload_optimizer"]["device"], "cpu");
        assert_eq!(value["bf16"]["enabled"], true);
    }

    #[test]
    fn model_names_are_quoted_for_a_shell() {
        let text = settings(ConfigArg::Vllm, "a b'; rm", &Workload::default());
        assert!(text.starts_with("vllm serve 'a b'\\''; rm' "), "{text}");
    }
}

//! A plan as a small program, which a dry run can check.

use oomph_plan::{Attention, Optimizer, Precision, Targets, Task, Workload};

/// A program in Python that does what the plan says, on a model with unset weights.
pub fn program(model: &str, workload: &Workload) -> String {
    let name = serde_json::Value::from(model).to_string();
    let weights = match (workload.precision, workload.task) {
        (Precision::Fp32, _) | (Precision::AmpBf16 | Precision::AmpFp16, Task::Full | Task::Freeze) => "float32",
        (Precision::Fp16, _) => "float16",
        _ => "bfloat16",
    };
    let attention = if workload.attention == Attention::Eager { "eager" } else { "sdpa" };
    let mut lines = vec![
        "\"\"\"A plan of oomph as a program.\"\"\"".to_owned(),
        String::new(),
        "import torch".into(),
        "from transformers import AutoConfig, AutoModelForCausalLM".into(),
        String::new(),
        format!("config = AutoConfig.from_pretrained({name})"),
        "with torch.device(\"meta\"):".into(),
        format!(
            "    model = AutoModelForCausalLM.from_config(config, dtype=torch.{weights}, attn_implementation=\"{attention}\")"
        ),
        "model.to_empty(device=\"cuda\")".into(),
        "model.tie_weights()".into(),
        format!("tokens = torch.zeros({}, {}, dtype=torch.long, device=\"cuda\")", workload.batch, workload.length),
    ];
    if workload.task.trains() {
        training(&mut lines, workload);
    } else if workload.task == Task::Generate {
        let new = workload.new_tokens;
        lines.push("model.eval()".into());
        lines.push(format!(
            "model.generate(input_ids=tokens, min_new_tokens={new}, max_new_tokens={new}, do_sample=False)"
        ));
    } else {
        lines.extend(["model.eval()".into(), "with torch.no_grad():".into(), "    model(input_ids=tokens)".into()]);
    }
    lines.join("\n") + "\n"
}

fn training(lines: &mut Vec<String>, workload: &Workload) {
    if matches!(workload.task, Task::Lora | Task::Qlora) {
        let targets = if workload.lora.targets == Targets::Default { "None" } else { "\"all-linear\"" };
        lines.push("from peft import LoraConfig, get_peft_model".into());
        lines.push(format!(
            "model = get_peft_model(model, LoraConfig(r={}, target_modules={targets}))",
            workload.lora.rank
        ));
    }
    if workload.task == Task::Freeze {
        lines.push("model.requires_grad_(False)".into());
        lines.push("model.get_output_embeddings().requires_grad_(True)".into());
    }
    if workload.checkpointing {
        lines.push("model.gradient_checkpointing_enable()".into());
    }
    lines.push("trained = [p for p in model.parameters() if p.requires_grad]".into());
    lines.push(match workload.optimizer {
        Optimizer::AdamwForeach => "optimizer = torch.optim.AdamW(trained, foreach=True)".into(),
        Optimizer::Adamw8bit | Optimizer::PagedAdamw8bit => {
            "import bitsandbytes\noptimizer = bitsandbytes.optim.AdamW8bit(trained)".into()
        }
        Optimizer::Adafactor => {
            "from transformers import Adafactor\noptimizer = Adafactor(trained, lr=1e-4, scale_parameter=False, \
             relative_step=False)"
                .into()
        }
        Optimizer::Sgd => "optimizer = torch.optim.SGD(trained, lr=1e-4)".into(),
        Optimizer::SgdMomentum => "optimizer = torch.optim.SGD(trained, lr=1e-4, momentum=0.9)".into(),
        _ => "optimizer = torch.optim.AdamW(trained, fused=True)".into(),
    });
    let kind = if workload.precision == Precision::AmpFp16 { "float16" } else { "bfloat16" };
    lines.extend([
        "model.train()".into(),
        "for _ in range(3):".into(),
        format!("    for _ in range({}):", workload.accumulation),
        format!("        with torch.autocast(\"cuda\", torch.{kind}, enabled={}):", {
            if workload.precision.is_amp() { "True" } else { "False" }
        }),
        "            loss = model(input_ids=tokens, labels=tokens).loss".into(),
        "        loss.backward()".into(),
        "        del loss".into(),
        "    optimizer.step()".into(),
        "    optimizer.zero_grad(set_to_none=True)".into(),
    ]);
}

//! Writes a plan as a small program, which a person can run and a dry run can check.

use std::fmt::Write;

use anyhow::Result;
use oomph_model::architecture::{Head, Kind, Transformer};
use oomph_plan::{Attention, Offloading, Optimizer, Precision, Subject, Targets, Task, Workload};

use super::subject::{Found, Origin};
use crate::failure::hinted;

/// Steps of training: the optimizer's state is there from the second on, and the allocator has settled at the third.
const STEPS: u32 = 3;

/// A program in Python that does what the plan says. It takes the model's name or folder as its argument.
///
/// # Errors
/// When no such program can be written: for several cards, for files that Python's libraries do not load, for an
/// optimizer that none of the usual packages has.
pub fn program(found: &Found, workload: &Workload) -> Result<String> {
    let refuse = |what: &str, hint: &str| Err(hinted(format!("no program is written for {what}"), hint));
    if workload.parallel.gpus > 1 {
        return refuse(
            "several cards",
            "leave out --gpus for the program of one card; --config has the settings of many",
        );
    }
    if workload.parallel.offload_optimizer || (workload.parallel.offload_weights && workload.task != Task::Image) {
        return refuse("offloading to host memory", "--config deepspeed has its settings");
    }
    if let Subject::Pipeline(pipeline) = &found.subject {
        if pipeline.is_guided() {
            return refuse("VQGAN+CLIP", "dry-run the script that is there: `oomph dry-run -- python generate.py ...`");
        }
        if workload.task.trains() {
            return refuse("training on images", "train_text_to_image.py and its like of diffusers do what is planned");
        }
        if pipeline.has_control() {
            return refuse("a ControlNet", "leave out --controlnet");
        }
        if matches!(workload.precision, Precision::Nf4 | Precision::Int8) {
            return refuse("a quantized pipeline", "leave out --precision");
        }
    }
    if let Some(name) = workload.objective.name() {
        return refuse(
            &format!("--task {name}"),
            "TRL and sentence-transformers have the trainer; `oomph dry-run` runs it",
        );
    }
    if workload.task == Task::Evaluate {
        return refuse("an evaluation", "`oomph dry-run` runs the program that evaluates");
    }
    if workload.task == Task::Serve {
        return refuse("a server", "--config vllm and --config llama.cpp have their command lines");
    }
    if let Subject::Transformer { stored: Some(stored), .. } = &found.subject
        && stored.llama_cpp.is_some()
    {
        return refuse("a GGUF file", "--config llama.cpp has its command line");
    }
    let name = match &found.origin {
        Origin::BuiltIn { hub, .. } | Origin::Hub { name: hub } => hub.clone(),
        Origin::Folder(path) => path.display().to_string(),
        Origin::File => {
            return refuse("a single file", "give the model's folder or name; --config llama.cpp is for GGUF files");
        }
    };
    match &found.subject {
        Subject::Transformer { shape, .. } => Ok(Text { shape, workload, name: &name }.program()?),
        Subject::Pipeline(_) if workload.task.trains() => {
            refuse("the training of a pipeline", "the examples of diffusers have one for each kind")
        }
        Subject::Pipeline(_) => Ok(images(&name, workload)),
    }
}

fn python_text(text: &str) -> String {
    // What JSON writes is a Python string too.
    serde_json::Value::from(text).to_string()
}

fn python(yes: bool) -> &'static str {
    if yes { "True" } else { "False" }
}

/// What the program begins with, whatever it does.
fn head(name: &str, packages: &str, imports: &str) -> String {
    format!(
        "\"\"\"A plan of `oomph plan` as a program. It needs {packages}.\n\n    python FILE [MODEL]\n\nMODEL is a folder or a \
         name on the Hub. To see what it takes without a GPU and without the weights:\n\n    oomph dry-run \
         --random-weights -- python FILE [MODEL]\n\"\"\"\n\nimport sys\n\nimport torch\n{imports}\nMODEL = sys.argv[1] if \
         len(sys.argv) > 1 else {}\n\n",
        python_text(name)
    )
}

/// A program for a transformer.
struct Text<'a> {
    shape: &'a Transformer,
    workload: &'a Workload,
    name: &'a str,
}

impl Text<'_> {
    fn program(&self) -> Result<String> {
        let workload = self.workload;
        let adapters = matches!(workload.task, Task::Lora | Task::Qlora);
        let quantized = self.quantization();
        let mut packages = vec!["torch", "transformers", "accelerate"];
        let mut classes = vec![self.class()];
        if quantized.is_some() {
            classes.push("BitsAndBytesConfig");
            packages.push("bitsandbytes");
        }
        let mut imports = String::new();
        if adapters {
            let preparation = if workload.prepared { ", prepare_model_for_kbit_training" } else { "" };
            let _ = writeln!(imports, "from peft import LoraConfig, get_peft_model{preparation}");
            packages.push("peft");
        }
        let optimizer = if workload.task.trains() { Some(self.optimizer()?) } else { None };
        if let Some(optimizer) = &optimizer {
            if let Some(import) = optimizer.import {
                let _ = writeln!(imports, "{import}");
            }
            if let Some(package) = optimizer.package.filter(|package| !packages.contains(package)) {
                packages.push(package);
            }
            classes.extend(optimizer.class);
        }
        classes.sort_unstable();
        let _ = writeln!(imports, "from transformers import {}", classes.join(", "));
        let mut text = head(self.name, &packages.join(", "), &imports);
        let attention = if workload.attention == Attention::Eager { "eager" } else { "sdpa" };
        let _ = write!(
            text,
            "model = {}.from_pretrained(\n    MODEL,\n    dtype=torch.{},\n    attn_implementation=\"{attention}\",\n    \
             device_map={{\"\": 0}},\n",
            self.class(),
            self.dtype()
        );
        if let Some(quantized) = quantized {
            let _ = writeln!(text, "    quantization_config={quantized},");
        }
        text.push_str(")\n");
        text.push_str(&self.inputs());
        match optimizer {
            Some(optimizer) => self.training(&mut text, &optimizer),
            None if workload.task == Task::Generate => self.generation(&mut text),
            None => text.push_str("model.eval()\nwith torch.no_grad():\n    model(**batch)\n"),
        }
        text.push_str(
            "free, total = torch.cuda.mem_get_info()\npeak = torch.cuda.max_memory_reserved()\n\
             print(f\"peak {peak / 2**30:.2f} GiB reserved of {total / 2**30:.2f} GiB\")\n",
        );
        Ok(text)
    }

    /// The class that loads the model.
    fn class(&self) -> &'static str {
        let shape = self.shape;
        match (shape.head, shape.kind) {
            (Head::Language, _) if shape.family == "whisper" => "AutoModelForSpeechSeq2Seq",
            (Head::Language, _) if shape.encoder.is_some() => "AutoModelForSeq2SeqLM",
            (Head::Language, _) if shape.vision.is_some() => "AutoModelForImageTextToText",
            (Head::Language, _) => "AutoModelForCausalLM",
            (Head::MaskedLanguage, _) => "AutoModelForMaskedLM",
            (Head::Classes(_), Kind::Vision) => "AutoModelForImageClassification",
            (Head::Classes(_), _) => "AutoModelForSequenceClassification",
            (Head::Projection(_), Kind::Vision) if shape.family == "clip_vision_model" => {
                "CLIPVisionModelWithProjection"
            }
            (Head::Projection(_), _) if shape.family == "clip_text_model" && shape.vision.is_none() => {
                "CLIPTextModelWithProjection"
            }
            (Head::None | Head::Projection(_), _) => "AutoModel",
        }
    }

    fn dtype(&self) -> &'static str {
        match (self.workload.precision, self.workload.task) {
            (Precision::Fp32, _) | (Precision::AmpBf16 | Precision::AmpFp16, Task::Full | Task::Freeze) => "float32",
            (Precision::Fp16 | Precision::AmpFp16, _) => "float16",
            _ => "bfloat16",
        }
    }

    fn quantization(&self) -> Option<String> {
        let workload = self.workload;
        match (workload.task, workload.precision) {
            (Task::Qlora, _) | (_, Precision::Nf4) => Some(format!(
                "BitsAndBytesConfig(\n        load_in_4bit=True,\n        bnb_4bit_quant_type=\"nf4\",\n        \
                 bnb_4bit_use_double_quant={},\n        bnb_4bit_compute_dtype=torch.bfloat16,\n    )",
                python(workload.double_quantization)
            )),
            (_, Precision::Int8) => Some("BitsAndBytesConfig(load_in_8bit=True)".into()),
            _ => None,
        }
    }

    /// A batch, of numbers that mean nothing.
    fn inputs(&self) -> String {
        let (shape, workload) = (self.shape, self.workload);
        let (batch, length) = (workload.batch, workload.length);
        let trains = workload.task.trains();
        let kind = if trains && workload.precision.is_amp() { "float32" } else { self.dtype() };
        // Ids below every vocabulary's special ones at its end.
        let most = shape.vocabulary.clamp(2, 1000);
        let tokens = format!("torch.randint(1, {most}, ({batch}, {length}), device=\"cuda\")");
        let mut text = String::from("\nbatch = {}\n");
        let own = |text: &mut String, name: &str, value: &str| {
            let _ = writeln!(text, "batch[\"{name}\"] = {value}");
        };
        let classes = if let Head::Classes(classes) = shape.head { Some(classes) } else { None };
        if let Some(image) = shape.image {
            let (side, colours) = (image.size, image.channels);
            let pixels = format!("torch.rand({batch}, {colours}, {side}, {side}, dtype=torch.{kind}, device=\"cuda\")");
            own(&mut text, "pixel_values", &pixels);
        } else if let Some(audio) = shape.encoder.as_ref().and_then(|encoder| encoder.audio) {
            let (bands, frames) = (audio.mel_bins, 2 * audio.positions);
            let sound = format!("torch.rand({batch}, {bands}, {frames}, dtype=torch.{kind}, device=\"cuda\")");
            own(&mut text, "input_features", &sound);
            if !trains && workload.task != Task::Generate {
                own(&mut text, "decoder_input_ids", &tokens);
            }
        } else {
            own(&mut text, "input_ids", &tokens);
            if shape.encoder.is_some() && !trains && workload.task != Task::Generate {
                own(&mut text, "decoder_input_ids", &tokens);
            }
        }
        if workload.padding && shape.image.is_none() {
            let mask = format!("torch.ones({batch}, {length}, dtype=torch.long, device=\"cuda\")");
            own(&mut text, "attention_mask", &mask);
            text.push_str("batch[\"attention_mask\"][0, -1] = 0\n");
        } else if workload.task == Task::Generate && shape.encoder.is_none() {
            own(&mut text, "attention_mask", "torch.ones_like(batch[\"input_ids\"])");
        }
        if trains {
            match classes {
                Some(_) => {
                    own(&mut text, "labels", &format!("torch.zeros({batch}, dtype=torch.long, device=\"cuda\")"))
                }
                None => own(&mut text, "labels", &tokens),
            }
        }
        text
    }

    fn generation(&self, text: &mut String) {
        let new = self.workload.new_tokens.max(1);
        let _ = write!(
            text,
            "model.eval()\nmodel.generation_config.eos_token_id = None  # So many tokens, whatever the model would say.\n\
             model.generation_config.pad_token_id = 0\nmodel.generate(**batch, max_new_tokens={new}, do_sample=False)\n"
        );
    }

    fn training(&self, text: &mut String, optimizer: &OptimizerCall) {
        let workload = self.workload;
        text.push('\n');
        if workload.prepared {
            let _ = writeln!(
                text,
                "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing={})",
                python(workload.checkpointing)
            );
        }
        if matches!(workload.task, Task::Lora | Task::Qlora) {
            let targets = match workload.lora.targets {
                Targets::Default => String::new(),
                Targets::AllLinear => ", target_modules=\"all-linear\"".into(),
            };
            let dropout = if workload.lora.dropout { ", lora_dropout=0.05" } else { "" };
            let rank = workload.lora.rank;
            let _ =
                writeln!(text, "model = get_peft_model(model, LoraConfig(r={rank}, lora_alpha=16{targets}{dropout}))");
        }
        if workload.task == Task::Freeze {
            text.push_str("model.requires_grad_(False)\nmodel.get_output_embeddings().requires_grad_(True)\n");
        }
        if workload.checkpointing && !workload.prepared {
            text.push_str("model.gradient_checkpointing_enable()\n");
        }
        text.push_str(
            "model.train()\ntrained = [parameter for parameter in model.parameters() if parameter.requires_grad]\n",
        );
        let _ = writeln!(text, "optimizer = {}", optimizer.call);
        if workload.optimizer == Optimizer::Adamw8bit || workload.optimizer == Optimizer::PagedAdamw8bit {
            // As Trainer has it: tables of embeddings keep 32 bits.
            text.push_str(
                "for module in model.modules():\n    if isinstance(module, torch.nn.Embedding):\n        \
                 bitsandbytes.optim.GlobalOptimManager.get_instance().register_module_override(\n            module, \
                 \"weight\", {\"optim_bits\": 32}\n        )\n",
            );
        }
        let kind = if workload.precision == Precision::AmpFp16 { "float16" } else { "bfloat16" };
        let amp = workload.precision.is_amp();
        let _ = write!(text, "\nfor step in range({STEPS}):\n");
        let mut indent = "    ";
        if workload.accumulation > 1 {
            let _ = writeln!(text, "    for micro_batch in range({}):", workload.accumulation);
            indent = "        ";
        }
        if amp {
            let _ = write!(
                text,
                "{indent}with torch.autocast(\"cuda\", torch.{kind}):\n{indent}    loss = model(**batch).loss\n"
            );
        } else {
            let _ = writeln!(text, "{indent}loss = model(**batch).loss");
        }
        let scaled = if workload.accumulation > 1 {
            format!("(loss / {}).backward()", workload.accumulation)
        } else {
            "loss.backward()".into()
        };
        let _ = write!(
            text,
            "{indent}{scaled}\n{indent}del loss\n    optimizer.step()\n    optimizer.zero_grad(set_to_none=True)\n"
        );
    }

    /// How the optimizer is made.
    fn optimizer(&self) -> Result<OptimizerCall> {
        let plain = |call: &'static str| OptimizerCall { call, import: None, package: None, class: None };
        let bitsandbytes = |call: &'static str| OptimizerCall {
            import: Some("import bitsandbytes"),
            package: Some("bitsandbytes"),
            ..plain(call)
        };
        Ok(match self.workload.optimizer {
            Optimizer::AdamwFused => plain("torch.optim.AdamW(trained, lr=1e-5, fused=True)"),
            Optimizer::AdamwForeach => plain("torch.optim.AdamW(trained, lr=1e-5, foreach=True)"),
            Optimizer::Adamw8bit => bitsandbytes("bitsandbytes.optim.AdamW8bit(trained, lr=1e-5)"),
            Optimizer::PagedAdamw8bit => bitsandbytes("bitsandbytes.optim.PagedAdamW8bit(trained, lr=1e-5)"),
            Optimizer::Lion => bitsandbytes("bitsandbytes.optim.Lion(trained, lr=1e-5)"),
            Optimizer::Lion8bit => bitsandbytes("bitsandbytes.optim.Lion8bit(trained, lr=1e-5)"),
            Optimizer::Adamw4bit => OptimizerCall {
                import: Some("from torchao.optim import AdamW4bit"),
                package: Some("torchao"),
                ..plain("AdamW4bit(trained, lr=1e-5)")
            },
            Optimizer::Adafactor => OptimizerCall {
                class: Some("Adafactor"),
                ..plain("Adafactor(trained, lr=1e-5, scale_parameter=False, relative_step=False)")
            },
            Optimizer::Sgd => plain("torch.optim.SGD(trained, lr=1e-5)"),
            Optimizer::SgdMomentum => plain("torch.optim.SGD(trained, lr=1e-5, momentum=0.9)"),
            Optimizer::Muon | Optimizer::Galore => {
                return Err(hinted(
                    format!("no program is written for the optimizer {}", self.workload.optimizer.name()),
                    "it is set up by hand, parameter group by parameter group; take adamw-8bit or adafactor",
                ));
            }
        })
    }
}

/// How an optimizer is made, and what that needs.
struct OptimizerCall {
    call: &'static str,
    import: Option<&'static str>,
    package: Option<&'static str>,
    class: Option<&'static str>,
}

/// A program for a pipeline of diffusers.
fn images(name: &str, workload: &Workload) -> String {
    let image = workload.image;
    let kind = match workload.precision {
        Precision::Fp32 => "float32",
        Precision::Fp16 => "float16",
        _ => "bfloat16",
    };
    let mut text =
        head(name, "torch, diffusers, transformers, accelerate", "from diffusers import DiffusionPipeline\n");
    let _ = writeln!(text, "pipe = DiffusionPipeline.from_pretrained(MODEL, torch_dtype=torch.{kind})");
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
    let _ = write!(
        text,
        "pipe(\n    \"a photograph\",\n    width={},\n    height={},\n    num_images_per_prompt={},\n    \
         num_inference_steps=2,\n)\n",
        image.width, image.height, workload.batch
    );
    text
}

//! Trainers of libraries, the program's own options, and adapters.

use super::*;

const WORDS: &str = "\
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

net = BertForSequenceClassification(BertConfig())
args = TrainingArguments(output_dir=\"out\")
trainer = Trainer(model=net, args=args, train_dataset=data)
trainer.train()
";

/// A Trainer's program whose model is one of transformers.
fn words() -> Facts {
    let model =
        ModelFacts { class: "BertForSequenceClassification".into(), library: "transformers".into(), blocks: vec![] };
    Facts { models: vec![model], ..trainer() }
}

#[test]
fn a_trainers_program_gets_adapters_offload_and_16_bits() {
    let program = program(WORDS, &[]);
    assert_eq!(
        changed(&program, "lora", &words()),
        [
            "+from peft import LoraConfig, get_peft_model",
            "+net = get_peft_model(net, LoraConfig(r=16, target_modules=\"all-linear\", task_type=\"SEQ_CLS\"))",
        ]
    );
    assert_eq!(
        changed(&program, "activation-offload", &words()),
        ["-trainer.train()", "+with torch.autograd.graph.save_on_cpu(pin_memory=True):", "+    trainer.train()"]
    );
    assert_eq!(changed(&program, "pure-bf16", &words()), ["+net.to(torch.bfloat16)"]);
    assert_eq!(
        changed(&program, "checkpointing-every-n-layers", &words()),
        [
            "-args = TrainingArguments(output_dir=\"out\")",
            "+args = TrainingArguments(output_dir=\"out\", activation_checkpointing=True, \
             activation_checkpointing_kwargs={\"every_n_layers\": 2})",
        ]
    );
}

#[test]
fn a_trainer_of_trl_is_given_the_adapter() {
    let text = "import torch\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n\
                model = AutoModelForCausalLM.from_pretrained(name)\nargs = SFTConfig(output_dir=\"o\")\n\
                trainer = SFTTrainer(model=model, args=args)\ntrainer.train()\n";
    let program = program(text, &[]);
    let model = ModelFacts { class: "LlamaForCausalLM".into(), library: "transformers".into(), blocks: vec![] };
    let facts = Facts { models: vec![model], trainer: Some("SFTTrainer".into()), ..trainer() };
    let lora = changed(&program, "lora", &facts).join("\n");
    assert!(
        lora.contains("peft_config=LoraConfig(r=16, target_modules=\"all-linear\", task_type=\"CAUSAL_LM\")"),
        "{lora}"
    );
    let qlora = changed(&program, "qlora", &facts).join("\n");
    assert!(qlora.contains("quantization_config=BitsAndBytesConfig(load_in_4bit=True"), "{qlora}");
    assert!(qlora.contains("peft_config="), "{qlora}");
}

#[test]
fn the_programs_own_options_come_first() {
    let text = "import argparse, torch\np = argparse.ArgumentParser()\n\
                p.add_argument('--bs', type=int, default=16)\np.add_argument('--accum', type=int, default=1)\n\
                p.add_argument('--amp', action='store_true')\np.add_argument('--grad-checkpointing', action='store_true')\n\
                p.add_argument('--optim', choices=['adamw', 'adamw_8bit'], default='adamw')\na = p.parse_args()\n\
                loader = DataLoader(d, batch_size=a.bs)\nfor x in loader:\n    loss = m(x)\n    loss.backward()\n    opt.step()\n";
    let program = program(text, &["--bs=8"]);
    for (remedy, wanted) in [
        ("micro-batch", &["--bs=4", "--accum", "2"][..]),
        ("autocast", &["--bs=8", "--amp"]),
        ("gradient-checkpointing", &["--bs=8", "--grad-checkpointing"]),
        ("adam-8bit", &["--bs=8", "--optim", "adamw_8bit"]),
    ] {
        let placed = placed(&program, remedy, &plain()).unwrap();
        assert_eq!((placed.way, placed.program.arguments()), (Way::Option, &wanted.map_to_strings()[..]), "{remedy}");
        assert!(placed.program.changed_since(&program).is_empty(), "{remedy}");
    }
    // Who can accumulate need not shrink the effective batch.
    assert!(placed(&program, "smaller-training-batch", &plain()).is_err());
}

/// Words as a program has them.
trait Words {
    fn map_to_strings(&self) -> Vec<String>;
}

impl Words for &[&str] {
    fn map_to_strings(&self) -> Vec<String> {
        self.iter().map(|word| (*word).to_owned()).collect()
    }
}

#[test]
fn a_trainer_gets_arguments_and_the_option_that_gives_one_is_set() {
    let text = "p.add_argument('--batch', type=int, default=8)\nargs = p.parse_args()\n\
                targs = TrainingArguments(\n    output_dir='o',\n    per_device_train_batch_size=args.batch,\n)\n";
    let program = program(text, &[]);
    assert_eq!(changed(&program, "gradient-checkpointing", &trainer()), ["+    gradient_checkpointing=True,"]);
    assert_eq!(changed(&program, "adam-8bit", &trainer()), ["+    optim=\"adamw_bnb_8bit\","]);
    assert_eq!(changed(&program, "micro-batch", &trainer()), ["+    gradient_accumulation_steps=4,"]);
    let placed = placed(&program, "micro-batch", &trainer()).unwrap();
    assert_eq!(placed.program.arguments(), ["--batch", "4"]);
}

#[test]
fn a_pipeline_is_offloaded_in_place_of_being_moved() {
    let text = "import torch\nfrom diffusers import AutoPipelineForText2Image\n\
                pipe = AutoPipelineForText2Image.from_pretrained('m', torch_dtype=torch.float16).to('cuda')\npipe('x')\n";
    let program = program(text, &[]);
    assert_eq!(changed(&program, "vae-slicing", &plain()), ["+pipe.vae.enable_slicing()"]);
    assert_eq!(
        changed(&program, "model-cpu-offload", &plain()),
        [
            "-pipe = AutoPipelineForText2Image.from_pretrained('m', torch_dtype=torch.float16).to('cuda')",
            "+pipe = AutoPipelineForText2Image.from_pretrained('m', torch_dtype=torch.float16)",
            "+pipe.enable_model_cpu_offload()",
        ]
    );
}

#[test]
fn constants_at_the_top_are_settings() {
    let text = "batch_size = 12 # samples\ngradient_accumulation_steps = 5\nwhile True:\n    \
                for micro_step in range(gradient_accumulation_steps):\n        x = get_batch()\n        \
                (model(x) / gradient_accumulation_steps).backward()\n    opt.step()\n";
    assert_eq!(
        changed(&program(text, &[]), "micro-batch", &Facts { batch_size: None, ..plain() }),
        [
            "-batch_size = 12 # samples",
            "-gradient_accumulation_steps = 5",
            "+batch_size = 6 # samples",
            "+gradient_accumulation_steps = 10",
        ]
    );
}

#[test]
fn adapters_come_before_the_optimizer() {
    let text = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n\
                model = RobertaForSequenceClassification(config)\n\
                optimizer = torch.optim.AdamW(params=model.parameters())\n\
                model, optimizer = accelerator.prepare(\n    model, optimizer)\nfor x in loader:\n    \
                accelerator.backward(model(x).loss)\n    optimizer.step()\n";
    let facts = Facts { trainer: None, ..words() };
    let placed = placed(&program(text, &[]), "lora", &facts).unwrap();
    let after = placed.program.text(Path::new(SCRIPT)).unwrap();
    let place = |part: &str| after.find(part).unwrap_or_else(|| panic!("no {part} in {after}"));
    assert!(place("get_peft_model(model") < place("torch.optim.AdamW"), "{after}");
}

#[test]
fn accelerate_is_asked_to_accumulate() {
    let text = "accelerator = Accelerator(mixed_precision=\"fp16\")\nloader = DataLoader(d, batch_size=8)\n\
                for x in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(x).loss)\n        \
                optimizer.step()\n        optimizer.zero_grad()\n";
    assert_eq!(
        changed(&program(text, &[]), "micro-batch", &plain()),
        [
            "-accelerator = Accelerator(mixed_precision=\"fp16\")",
            "-loader = DataLoader(d, batch_size=8)",
            "+accelerator = Accelerator(mixed_precision=\"fp16\", gradient_accumulation_steps=2)",
            "+loader = DataLoader(d, batch_size=4)",
        ]
    );
    assert!(placed(&program(text, &[]), "smaller-training-batch", &plain()).is_err());
}

#[test]
fn a_trainer_of_lightnings_does_not_accumulate_for_a_module_that_steps_itself() {
    let text = "import lightning as L\n\nclass GAN(L.LightningModule):\n    def __init__(self):\n        super().__init__()\n        \
                self.automatic_optimization = False\n\ndata = DataLoader(pictures, batch_size=128)\n\
                trainer = L.Trainer(max_epochs=1, accelerator=\"gpu\")\ntrainer.fit(GAN(), data)\n";
    let manual = program(text, &[]);
    assert!(manual.steps_by_hand());
    let why = placed(&manual, "micro-batch", &plain()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(why.contains("does not accumulate"), "{why}");
    assert_eq!(
        changed(&manual, "smaller-training-batch", &plain()),
        ["-data = DataLoader(pictures, batch_size=128)", "+data = DataLoader(pictures, batch_size=64)"]
    );
    let automatic = program(&text.replace("False", "True"), &[]);
    assert!(changed(&automatic, "micro-batch", &plain()).iter().any(|line| line.contains("accumulate_grad_batches=2")));
}

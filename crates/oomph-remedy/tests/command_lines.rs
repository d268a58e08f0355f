//! Real command lines before and after a remedy.

use oomph_remedy::rewrite::{CannotRewrite, Into, Line, Rewrite, rewrite};
use oomph_remedy::{Catalogue, Framework, Installed, Situation};
use proptest::prelude::*;

fn words(line: &str) -> Vec<String> {
    shlex::split(line).unwrap_or_else(|| panic!("{line}"))
}

fn apply(line: &str, remedy: &str) -> Result<Rewrite, CannotRewrite> {
    let remedy = Catalogue::builtin().get(remedy).unwrap_or_else(|| panic!("{remedy}"));
    rewrite(&Line::new(words(line)), remedy, &Situation::default(), Into::Line)
}

/// A command line, a remedy, and the line that comes of it.
const LINES: &[(&str, &str, &str)] = &[
    // Transformers: the forms of a flag.
    (
        "python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 8 --do_train",
        "micro-batch",
        "python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --do_train --gradient_accumulation_steps 2",
    ),
    (
        "python run_clm.py --per_device_train_batch_size=8 --gradient_accumulation_steps=4",
        "micro-batch",
        "python run_clm.py --per_device_train_batch_size=4 --gradient_accumulation_steps=8",
    ),
    (
        "python run_glue.py --per-device-train-batch-size 32",
        "micro-batch",
        "python run_glue.py --per-device-train-batch-size 16 --gradient_accumulation_steps 2",
    ),
    (
        "python run_squad.py --per_gpu_train_batch_size 12 --lr -1e-5",
        "micro-batch",
        "python run_squad.py --per_gpu_train_batch_size 6 --lr -1e-5 --gradient_accumulation_steps 2",
    ),
    (
        "python run_clm.py --do_train",
        "micro-batch",
        "python run_clm.py --do_train --per_device_train_batch_size 4 --gradient_accumulation_steps 2",
    ),
    (
        "python run_clm.py --per_device_train_batch_size 16 --per_device_train_batch_size 4",
        "micro-batch",
        "python run_clm.py --per_device_train_batch_size 16 --per_device_train_batch_size 2 --gradient_accumulation_steps 2",
    ),
    (
        "python run_clm.py --per_device_train_batch_size 33",
        "micro-batch",
        "python run_clm.py --per_device_train_batch_size 17 --gradient_accumulation_steps 2",
    ),
    (
        "python run_clm.py --per_device_train_batch_size 8 -- --per_device_train_batch_size 64",
        "micro-batch",
        "python run_clm.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2 -- --per_device_train_batch_size 64",
    ),
    ("python run_clm.py --fp16", "gradient-checkpointing", "python run_clm.py --fp16 --gradient_checkpointing True"),
    (
        "python run_clm.py --gradient_checkpointing False --fp16",
        "gradient-checkpointing",
        "python run_clm.py --gradient_checkpointing True --fp16",
    ),
    ("python run_clm.py --optim adamw_torch", "adam-8bit", "python run_clm.py --optim adamw_bnb_8bit"),
    ("python run_clm.py --optim=adamw_torch", "adafactor", "python run_clm.py --optim=adafactor"),
    ("python run_clm.py --fp16 True", "autocast", "python run_clm.py --bf16 True"),
    ("python run_clm.py --block_size 1024", "shorter-sequence", "python run_clm.py --block_size 512"),
    ("python run_mlm.py --max_seq_length 512", "shorter-sequence", "python run_mlm.py --max_seq_length 256"),
    ("python run_glue.py --do_eval", "eval-accumulation", "python run_glue.py --do_eval --eval_accumulation_steps 1"),
    (
        "python run_glue.py --per_device_eval_batch_size 64",
        "eval-batch",
        "python run_glue.py --per_device_eval_batch_size 1",
    ),
    ("python run_clm.py", "fused-cross-entropy", "python run_clm.py --use_liger_kernel True"),
    ("python run_clm.py --dataloader_num_workers 16", "fewer-workers", "python run_clm.py --dataloader_num_workers 2"),
    // Launchers in front of the script.
    (
        "torchrun --nproc_per_node 4 run_clm.py --per_device_train_batch_size 8",
        "micro-batch",
        "torchrun --nproc_per_node 4 run_clm.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2",
    ),
    (
        "torchrun --standalone --nproc_per_node=4 run_clm.py --optim adamw_torch",
        "adam-8bit",
        "torchrun --standalone --nproc_per_node=4 run_clm.py --optim adamw_bnb_8bit",
    ),
    (
        "python -m torch.distributed.run --nproc_per_node 2 run_clm.py",
        "gradient-checkpointing",
        "python -m torch.distributed.run --nproc_per_node 2 run_clm.py --gradient_checkpointing True",
    ),
    (
        "accelerate launch --num_processes 2 --multi_gpu run_clm.py --per_device_train_batch_size 2",
        "micro-batch",
        "accelerate launch --num_processes 2 --multi_gpu run_clm.py --per_device_train_batch_size 1 --gradient_accumulation_steps 2",
    ),
    (
        "accelerate launch --config_file fsdp.yaml --mixed_precision fp16 train_dreambooth_lora_sdxl.py --resolution 1024",
        "gradient-checkpointing",
        "accelerate launch --config_file fsdp.yaml --mixed_precision fp16 train_dreambooth_lora_sdxl.py --resolution 1024 --gradient_checkpointing",
    ),
    (
        "accelerate launch --use_fsdp my_run/run_clm.py --do_train",
        "fsdp",
        "accelerate launch --use_fsdp my_run/run_clm.py --do_train --fsdp",
    ),
    (
        "accelerate launch --num_processes 4 train_text_to_image.py --train_batch_size 4",
        "zero-2",
        "accelerate launch --num_processes 4 --use_deepspeed --zero_stage 2 train_text_to_image.py --train_batch_size 4",
    ),
    (
        "deepspeed --num_gpus 2 run_clm.py --deepspeed ds.json --per_device_train_batch_size 4",
        "micro-batch",
        "deepspeed --num_gpus 2 run_clm.py --deepspeed ds.json --per_device_train_batch_size 2 --gradient_accumulation_steps 2",
    ),
    (
        "CUDA_VISIBLE_DEVICES=0 nohup python3.11 -u run_clm.py --per_device_train_batch_size 4",
        "micro-batch",
        "CUDA_VISIBLE_DEVICES=0 nohup python3.11 -u run_clm.py --per_device_train_batch_size 2 --gradient_accumulation_steps 2",
    ),
    (
        "env WANDB_MODE=offline python -W ignore run_clm.py --fp16",
        "adam-8bit",
        "env WANDB_MODE=offline python -W ignore run_clm.py --fp16 --optim adamw_bnb_8bit",
    ),
    (
        "uv run --with bitsandbytes python run_clm.py",
        "adam-8bit",
        "uv run --with bitsandbytes python run_clm.py --optim adamw_bnb_8bit",
    ),
    (
        "conda run -n ml --no-capture-output python run_clm.py",
        "adam-8bit",
        "conda run -n ml --no-capture-output python run_clm.py --optim adamw_bnb_8bit",
    ),
    (
        "srun --gres=gpu:1 --mem 32G python run_clm.py",
        "sgd",
        "srun --gres=gpu:1 --mem 32G python run_clm.py --optim sgd",
    ),
    (
        "nice -n 5 /usr/bin/python3 examples/pytorch/language-modeling/run_clm.py",
        "lion-8bit",
        "nice -n 5 /usr/bin/python3 examples/pytorch/language-modeling/run_clm.py --optim lion_8bit",
    ),
    // A script of one's own is known by its flags.
    (
        "python train.py --per_device_train_batch_size 8",
        "micro-batch",
        "python train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2",
    ),
    // TRL.
    (
        "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 2",
        "micro-batch",
        "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 1 --gradient_accumulation_steps 2",
    ),
    (
        "accelerate launch examples/scripts/sft.py --max_length 4096",
        "shorter-sequence",
        "accelerate launch examples/scripts/sft.py --max_length 2048",
    ),
    (
        "python trl/scripts/dpo.py --packing True --bf16",
        "lora",
        "python trl/scripts/dpo.py --packing True --bf16 --use_peft --lora_r 16 --lora_target_modules all-linear",
    ),
    // Diffusers' scripts.
    (
        "accelerate launch train_dreambooth_lora_flux.py --train_batch_size=2 --gradient_accumulation_steps=4",
        "micro-batch",
        "accelerate launch train_dreambooth_lora_flux.py --train_batch_size=1 --gradient_accumulation_steps=8",
    ),
    (
        "python train_text_to_image_lora.py --resolution 1024",
        "adam-8bit",
        "python train_text_to_image_lora.py --resolution 1024 --use_8bit_adam",
    ),
    (
        "python train_controlnet.py --resolution=768",
        "smaller-resolution",
        "python train_controlnet.py --resolution=384",
    ),
    (
        "python train_dreambooth.py --train_text_encoder --train_batch_size 1",
        "train-denoiser-only",
        "python train_dreambooth.py --train_batch_size 1",
    ),
    // kohya.
    (
        "accelerate launch --num_cpu_threads_per_process 1 sdxl_train_network.py --train_batch_size 4 --network_dim 32",
        "micro-batch",
        "accelerate launch --num_cpu_threads_per_process 1 sdxl_train_network.py --train_batch_size 2 --network_dim 32 --gradient_accumulation_steps 2",
    ),
    (
        "python flux_train_network.py --optimizer_type AdamW",
        "adam-8bit",
        "python flux_train_network.py --optimizer_type AdamW8bit",
    ),
    (
        "python flux_train_network.py --cpu_offload_checkpointing --gradient_checkpointing",
        "block-swap",
        "python flux_train_network.py --gradient_checkpointing --blocks_to_swap 16",
    ),
    (
        "python train_network.py --optimizer_type AdamW --optimizer_args weight_decay=0.1",
        "adafactor",
        "python train_network.py --optimizer_type Adafactor --optimizer_args relative_step=False scale_parameter=False warmup_init=False",
    ),
    // torchtune, LLaMA-Factory, Axolotl, Ultralytics, Detectron2, fairseq, Megatron, timm.
    (
        "tune run --nproc_per_node 2 full_finetune_distributed --config llama3_1/8B_full batch_size=8 gradient_accumulation_steps=1",
        "micro-batch",
        "tune run --nproc_per_node 2 full_finetune_distributed --config llama3_1/8B_full batch_size=4 gradient_accumulation_steps=2",
    ),
    (
        "tune run lora_finetune_single_device --config llama2/7B_lora_single_device",
        "gradient-checkpointing",
        "tune run lora_finetune_single_device --config llama2/7B_lora_single_device enable_activation_checkpointing=True",
    ),
    (
        "llamafactory-cli train llama3_lora.yaml per_device_train_batch_size=4 gradient_accumulation_steps=8",
        "micro-batch",
        "llamafactory-cli train llama3_lora.yaml per_device_train_batch_size=2 gradient_accumulation_steps=16",
    ),
    (
        "llamafactory-cli train llama3_lora.yaml",
        "qlora",
        "llamafactory-cli train llama3_lora.yaml finetuning_type=lora quantization_bit=4",
    ),
    (
        "axolotl train config.yml --micro-batch-size 4 --gradient-accumulation-steps 2",
        "micro-batch",
        "axolotl train config.yml --micro-batch-size 2 --gradient-accumulation-steps 4",
    ),
    (
        "accelerate launch -m axolotl.cli.train config.yml",
        "gradient-checkpointing",
        "accelerate launch -m axolotl.cli.train config.yml --gradient-checkpointing",
    ),
    (
        "yolo detect train data=coco8.yaml model=yolo11n.pt batch=32 imgsz=640",
        "micro-batch",
        "yolo detect train data=coco8.yaml model=yolo11n.pt batch=16 imgsz=640",
    ),
    ("yolo train data=coco8.yaml imgsz=1280", "smaller-resolution", "yolo train data=coco8.yaml imgsz=640"),
    (
        "python tools/train_net.py --config-file mask_rcnn.yaml --num-gpus 1 SOLVER.IMS_PER_BATCH 16 SOLVER.BASE_LR 0.02",
        "micro-batch",
        "python tools/train_net.py --config-file mask_rcnn.yaml --num-gpus 1 SOLVER.IMS_PER_BATCH 8 SOLVER.BASE_LR 0.02",
    ),
    (
        "python train_net.py --config-file faster_rcnn.yaml",
        "autocast",
        "python train_net.py --config-file faster_rcnn.yaml SOLVER.AMP.ENABLED True",
    ),
    (
        "fairseq-train data-bin --batch-size 64 --update-freq 2",
        "micro-batch",
        "fairseq-train data-bin --batch-size 32 --update-freq 4",
    ),
    (
        "torchrun --nproc-per-node 8 pretrain_gpt.py --micro-batch-size 4 --seq-length 4096",
        "micro-batch",
        "torchrun --nproc-per-node 8 pretrain_gpt.py --micro-batch-size 2 --seq-length 4096",
    ),
    (
        "python pytorch-image-models/train.py /data --model vit_large_patch16_224 -b 256",
        "micro-batch",
        "python pytorch-image-models/train.py /data --model vit_large_patch16_224 -b 128 --grad-accum-steps 2",
    ),
    // Image programs.
    (
        "python launch.py --lowvram --xformers --autolaunch",
        "sdpa",
        "python launch.py --lowvram --autolaunch --opt-sdp-attention",
    ),
    ("./webui.sh --lowvram", "model-cpu-offload", "./webui.sh --medvram"),
    (
        "python stable-diffusion-webui-forge/launch.py --always-gpu",
        "partial-offload",
        "python stable-diffusion-webui-forge/launch.py --always-low-vram",
    ),
    (
        "python ComfyUI/main.py --highvram --listen 0.0.0.0",
        "sequential-cpu-offload",
        "python ComfyUI/main.py --listen 0.0.0.0 --novram",
    ),
    (
        "python ComfyUI/main.py --bf16-unet",
        "fp8-weights",
        "python ComfyUI/main.py --fp8_e4m3fn-unet --fp8_e4m3fn-text-enc",
    ),
    (
        "python VQGAN-CLIP/generate.py -p 'a painting of an apple' -s 512 384 -cuts 32",
        "smaller-resolution",
        "python VQGAN-CLIP/generate.py -p 'a painting of an apple' -s 256 192 -cuts 32",
    ),
    (
        "python VQGAN-CLIP/generate.py -p 'an apple' -cuts 64",
        "fewer-cuts",
        "python VQGAN-CLIP/generate.py -p 'an apple' -cuts 16",
    ),
    // Servers.
    (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072 --gpu-memory-utilization 0.9",
        "shorter-context",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 65536 --gpu-memory-utilization 0.9",
    ),
    (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --gpu-memory-utilization=0.9",
        "lower-utilization",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --gpu-memory-utilization=0.85",
    ),
    (
        "python -m vllm.entrypoints.openai.api_server --model facebook/opt-125m",
        "enforce-eager",
        "python -m vllm.entrypoints.openai.api_server --model facebook/opt-125m --enforce-eager",
    ),
    (
        "vllm serve Qwen/Qwen2.5-7B --max-num-seqs 256",
        "fewer-sequences",
        "vllm serve Qwen/Qwen2.5-7B --max-num-seqs 128",
    ),
    (
        "vllm serve Qwen/Qwen2.5-7B",
        "fewer-graph-sizes",
        "vllm serve Qwen/Qwen2.5-7B --compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'",
    ),
    (
        "python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B --context-length 32768",
        "kv-cache-dtype",
        "python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B --context-length 32768 --kv-cache-dtype fp8_e5m2",
    ),
    (
        "text-generation-launcher --model-id bigscience/bloom-560m --max-total-tokens 4096",
        "shorter-context",
        "text-generation-launcher --model-id bigscience/bloom-560m --max-total-tokens 2048",
    ),
    (
        "./build/bin/llama-server -m model.gguf -ngl 33 -c 32768 -fa on",
        "fewer-gpu-layers",
        "./build/bin/llama-server -m model.gguf -ngl 24 -c 32768 -fa on",
    ),
    (
        "llama-cli -m model.gguf --n-gpu-layers 40 --ctx-size=16384 -p hi",
        "shorter-context",
        "llama-cli -m model.gguf --n-gpu-layers 40 --ctx-size=8192 -p hi",
    ),
    (
        "llama-server -m model.gguf --gpu-layers 99 --ctx-size 65536 --port 8080",
        "let-it-fit",
        "llama-server -m model.gguf --ctx-size 65536 --port 8080",
    ),
    (
        "llama-server -m model.gguf --cache-type-k f16",
        "kv-cache-dtype",
        "llama-server -m model.gguf --cache-type-k q8_0 -fa on -ctv q8_0",
    ),
    ("whisper audio.mp3 --model large --beam_size 5", "smaller-model", "whisper audio.mp3 --model small --beam_size 5"),
];

#[test]
fn each_line_becomes_what_it_should() {
    let mut wrong = Vec::new();
    for (before, remedy, after) in LINES {
        match apply(before, remedy) {
            Ok(rewrite) if rewrite.line.words == words(after) => {}
            Ok(rewrite) => wrong.push(format!("{remedy}\n  of   {before}\n  is   {}\n  not  {after}", rewrite.shell())),
            Err(error) => wrong.push(format!("{remedy}\n  of   {before}\n  says {error}")),
        }
    }
    assert!(LINES.len() >= 60, "{}", LINES.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_second_time_there_is_nothing_to_change_where_no_number_is_halved() {
    for (before, remedy, _) in LINES {
        let first = apply(before, remedy).unwrap();
        let second = rewrite(&first.line, Catalogue::builtin().get(remedy).unwrap(), &Situation::default(), Into::Line);
        let halves = first
            .changes
            .iter()
            .any(|change| change.after.as_deref().is_some_and(|after| after.ends_with(|c: char| c.is_ascii_digit())));
        match second {
            Ok(_) | Err(CannotRewrite::AtItsFloor { .. }) => assert!(halves, "{remedy} of {before}"),
            Err(CannotRewrite::NothingToChange { .. }) => {}
            Err(error) => panic!("{remedy} of {before}: {error}"),
        }
    }
}

#[test]
fn variables_are_set_or_changed_where_they_stand() {
    let new = apply("python run_clm.py", "expandable-segments").unwrap();
    assert_eq!(new.shell(), "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python run_clm.py");
    let changed =
        apply("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 python run_clm.py", "expandable-segments").unwrap();
    assert_eq!(changed.line.words[0], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    assert!(changed.environment.is_empty());
    let old = Situation {
        frameworks: vec![Installed::from(Framework::Transformers), Installed::new(Framework::Pytorch, "1.13")],
        ..Situation::default()
    };
    let remedy = Catalogue::builtin().get("expandable-segments").unwrap();
    let refused = rewrite(&Line::new(words("python run_clm.py")), remedy, &old, Into::Line);
    assert!(matches!(refused, Err(CannotRewrite::NotAnArgument { .. })), "{refused:?}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let refused = |line: &str, remedy: &str| apply(line, remedy).unwrap_err();
    assert_eq!(refused("make -j8", "micro-batch"), CannotRewrite::UnknownProgram);
    assert_eq!(refused("python -c 'print(1)'", "micro-batch"), CannotRewrite::UnknownProgram);
    assert_eq!(refused("", "micro-batch"), CannotRewrite::UnknownProgram);
    assert!(matches!(
        refused("python run_clm.py --per_device_train_batch_size 1", "micro-batch"),
        CannotRewrite::AtItsFloor { .. }
    ));
    assert!(matches!(refused("yolo train batch=-1", "micro-batch"), CannotRewrite::UnknownValue { .. }));
    assert!(matches!(refused("vllm serve model", "shorter-context"), CannotRewrite::UnknownValue { .. }));
    assert!(matches!(refused("python run_clm.py", "zero-3"), CannotRewrite::NeedsFile { .. }));
    assert!(matches!(refused("python run_clm.py", "qlora"), CannotRewrite::NotAnArgument { .. }));
    assert!(matches!(
        refused("python run_clm.py --gradient_checkpointing", "gradient-checkpointing"),
        CannotRewrite::NothingToChange { .. }
    ));
}

#[test]
fn the_user_sees_what_else_changes() {
    let odd = apply("python run_clm.py --per_device_train_batch_size 33", "micro-batch").unwrap();
    assert_eq!(odd.notes, ["33 is odd: the effective batch becomes 34 instead of 33"]);
    let file =
        apply("deepspeed run_clm.py --deepspeed ds.json --per_device_train_batch_size 4", "micro-batch").unwrap();
    assert!(file.notes[0].contains("ds.json"));
    let rate = apply("python train_net.py SOLVER.IMS_PER_BATCH 16", "micro-batch").unwrap();
    assert!(rate.notes[0].contains("BASE_LR"));
}

#[test]
fn the_difference_is_shown_argument_by_argument() {
    let rewrite = apply("python launch.py --lowvram --xformers", "sdpa").unwrap();
    assert_eq!(rewrite.diff(), "- --xformers\n+ --opt-sdp-attention");
    let rewrite = apply("python run_clm.py --per_device_train_batch_size=8", "micro-batch").unwrap();
    assert_eq!(
        rewrite.diff(),
        "- --per_device_train_batch_size=8\n+ --per_device_train_batch_size=4\n+ --gradient_accumulation_steps 2"
    );
}

proptest! {
    #[test]
    fn any_line_is_answered_and_what_is_not_changed_stays_in_order(
        line in proptest::collection::vec(
            prop_oneof![
                "[ -~]{0,12}",
                proptest::sample::select(vec![
                    "python", "-m", "torchrun", "accelerate", "launch", "run_clm.py", "tune", "run", "--", "-ngl", "33",
                    "--per_device_train_batch_size", "8", "vllm", "serve", "llama-server", "yolo", "batch=16", "=",
                    "train_net.py", "SOLVER.IMS_PER_BATCH", "VQGAN-CLIP/generate.py", "-s",
                ])
                .prop_map(str::to_owned),
            ],
            0..12,
        ),
        position in any::<proptest::sample::Index>(),
    ) {
        let remedies = Catalogue::builtin().remedies();
        let remedy = &remedies[position.index(remedies.len())];
        if let Ok(rewrite) = rewrite(&Line::new(line), remedy, &Situation::default(), Into::Line) {
            prop_assert!(!rewrite.changes.is_empty() || !rewrite.environment.is_empty());
            prop_assert!(!rewrite.diff().is_empty());
        }
    }
}

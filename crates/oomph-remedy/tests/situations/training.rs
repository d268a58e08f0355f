//! Training, on one card and on several.

use std::collections::BTreeMap;

use oomph_remedy::{Cause, Framework, Installed, Operation, OwnerGroup, Settings};

use super::{Case, GIB, MIB, inference, memory, training};

#[expect(clippy::too_many_lines, reason = "a table")]
pub fn cases() -> Vec<Case> {
    use Framework::{Axolotl, LlamaFactory, Peft, Pytorch, Timm, Torchtune, Transformers, Trl, Ultralytics};
    let mut gpt2 = training(&[Transformers, Pytorch], Cause::Full, Operation::Backward);
    gpt2.memory = memory(3 * GIB, 12 * GIB, GIB, 10 * GIB, 10 * GIB + 200 * MIB);
    gpt2.settings = Settings { batch_size: Some(32), gradient_accumulation: Some(1), ..Settings::default() };

    let mut llama_logits = training(&[Trl, Peft, Transformers, Pytorch], Cause::Full, Operation::Logits);
    llama_logits.memory = memory(4 * GIB, 24 * GIB, GIB, 22 * GIB, 22 * GIB + 300 * MIB);
    llama_logits.settings = Settings { vocabulary: Some(128_256), batch_size: Some(1), ..Settings::default() };
    llama_logits.on = ["lora", "gradient-checkpointing", "sdpa"].map(str::to_owned).into();

    let mut first_step = training(&[Transformers, Pytorch], Cause::Full, Operation::OptimizerInit);
    first_step.memory = memory(64 * MIB, 24 * GIB, 30 * MIB, 23 * GIB, 23 * GIB);
    first_step.settings = Settings {
        model_parameters: Some(1_500_000_000),
        trainable_parameters: Some(1_500_000_000),
        bytes_per_parameter: Some(4.0),
        batch_size: Some(8),
        ..Settings::default()
    };
    first_step.owners = Some(BTreeMap::from([
        (OwnerGroup::Parameters, 6 * GIB),
        (OwnerGroup::Gradients, 6 * GIB),
        (OwnerGroup::OptimizerState, 11 * GIB),
    ]));

    let mut full_7b = training(&[Transformers, Pytorch], Cause::Full, Operation::Load);
    full_7b.settings =
        Settings { model_parameters: Some(6_738_415_616), bytes_per_parameter: Some(4.0), ..Settings::default() };
    full_7b.memory = memory(64 * MIB, 24 * GIB, 20 * MIB, 23 * GIB, 23 * GIB);

    let mut t4_eager = training(&[Pytorch], Cause::TooLarge, Operation::AttentionScores);
    t4_eager.memory = memory(32 * GIB, 15 * GIB, 10 * GIB, 4 * GIB, 4 * GIB);
    t4_eager.compute_capability = Some((7, 5));

    let mut leak = training(&[Pytorch], Cause::Leak, Operation::Forward);
    leak.memory = memory(20 * MIB, 8 * GIB, 0, 7 * GIB, 7 * GIB + 100 * MIB);

    let mut eval = inference(&[Transformers, Pytorch], Cause::Full, Operation::Evaluation);
    eval.memory = memory(17 * GIB, 24 * GIB, 10 * GIB, 12 * GIB, 13 * GIB);

    let mut one_sample = training(&[Axolotl, Pytorch], Cause::Full, Operation::Backward);
    one_sample.settings.batch_size = Some(1);

    let mut fragmented = training(&[Pytorch], Cause::Fragmentation, Operation::Forward);
    fragmented.memory = memory(2 * GIB, 24 * GIB, 500 * MIB, 15 * GIB, 22 * GIB);

    let mut fragmented_old = fragmented.clone();
    fragmented_old.frameworks = vec![Installed::new(Pytorch, "1.13.1")];

    let mut slackless = training(&[Pytorch], Cause::Full, Operation::Forward);
    slackless.memory = memory(2 * GIB, 24 * GIB, GIB, 21 * GIB + 594 * MIB, 22 * GIB);

    let mut two_gpus = training(&[Pytorch], Cause::Full, Operation::OptimizerInit);
    two_gpus.gpus = Some(4);
    two_gpus.on = ["micro-batch"].map(str::to_owned).into();

    let mut step = training(&[Pytorch], Cause::Full, Operation::OptimizerStep);
    step.memory = memory(5 * GIB, 24 * GIB, GIB, 22 * GIB, 22 * GIB);

    let mut packed = training(&[LlamaFactory, Pytorch], Cause::Full, Operation::Backward);
    packed.settings.packing = Some(true);

    vec![
        Case {
            name: "HF Trainer, GPT-2, batch 32 on 12 GiB, in backward",
            situation: gpt2,
            first: "micro-batch",
            among: &["gradient-checkpointing"],
            never: &["expandable-segments", "lora", "max-split-size", "no-grad"],
            avoid: &["allocator-settings-without-slack", "empty-cache", "accumulate-alone"],
            words: &["--per_device_train_batch_size 16 --gradient_accumulation_steps 2"],
        },
        Case {
            name: "LoRA of an 8B with a vocabulary of 128k, at the loss",
            situation: llama_logits,
            first: "fused-cross-entropy",
            among: &[],
            never: &["lora", "micro-batch", "sdpa", "gradient-checkpointing", "adam-8bit"],
            avoid: &["batch-is-already-one", "allocator-settings-without-slack"],
            words: &["--use_liger_kernel True"],
        },
        Case {
            name: "full fine-tuning dies at its first optimizer step",
            situation: first_step,
            first: "adam-8bit",
            among: &["optimizer-cpu-offload"],
            never: &["micro-batch", "gradient-checkpointing", "activation-offload", "sdpa", "autocast"],
            avoid: &["batch-at-optimizer-init", "allocator-settings-without-slack"],
            words: &["--optim adamw_bnb_8bit"],
        },
        Case {
            name: "a 7B in fp32 does not even load on 24 GiB",
            situation: full_7b,
            first: "pure-bf16",
            among: &["qlora"],
            never: &["micro-batch", "gradient-checkpointing", "adam-8bit", "expandable-segments"],
            avoid: &["weights-do-not-fit", "batch-during-load"],
            words: &[],
        },
        Case {
            name: "eager attention of a long sequence on a T4",
            situation: t4_eager,
            first: "sdpa",
            among: &[],
            never: &["flash-attention", "adam-8bit", "lora", "expandable-segments"],
            avoid: &[],
            words: &["scaled_dot_product_attention"],
        },
        Case {
            name: "a loop that keeps its losses",
            situation: leak,
            first: "detach-losses",
            among: &[],
            never: &["micro-batch", "gradient-checkpointing"],
            avoid: &["empty-cache-for-leak"],
            words: &["loss.item()"],
        },
        Case {
            name: "evaluation gathers all logits on the GPU",
            situation: eval,
            first: "eval-accumulation",
            among: &["logits-preprocessing"],
            never: &["adam-8bit", "micro-batch", "gradient-checkpointing"],
            avoid: &[],
            words: &["--eval_accumulation_steps 1"],
        },
        Case {
            name: "axolotl with a micro-batch of one",
            situation: one_sample,
            first: "gradient-checkpointing",
            among: &["activation-offload"],
            never: &["micro-batch"],
            avoid: &["batch-is-already-one"],
            words: &["gradient_checkpointing: true"],
        },
        Case {
            name: "true fragmentation on a current PyTorch",
            situation: fragmented,
            first: "expandable-segments",
            among: &[],
            never: &["lora", "adam-8bit"],
            avoid: &[],
            words: &["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
        },
        Case {
            name: "true fragmentation on PyTorch 1.13, which has no expandable segments",
            situation: fragmented_old,
            first: "max-split-size",
            among: &[],
            never: &["expandable-segments", "cuda-malloc-async"],
            avoid: &[],
            words: &["max_split_size_mb"],
        },
        Case {
            name: "the message of the guides: 0.42 GiB of slack for a request of 2 GiB",
            situation: slackless,
            first: "micro-batch",
            among: &["gradient-checkpointing"],
            never: &["expandable-segments", "max-split-size", "garbage-collection-threshold", "cuda-malloc-async"],
            avoid: &["allocator-settings-without-slack", "empty-cache"],
            words: &[],
        },
        Case {
            name: "DDP on four GPUs dies at its first optimizer step",
            situation: two_gpus,
            first: "zero-1",
            among: &["adam-8bit"],
            never: &["micro-batch", "gradient-checkpointing"],
            avoid: &["ddp-splits-the-model"],
            words: &["ZeroRedundancyOptimizer"],
        },
        Case {
            name: "a later optimizer step wants as much again as the weights",
            situation: step,
            first: "fused-optimizer",
            among: &["adam-8bit"],
            never: &["gradient-checkpointing"],
            avoid: &["batch-at-optimizer-init"],
            words: &["fused=True"],
        },
        Case {
            name: "LLaMA-Factory with packing",
            situation: packed,
            first: "micro-batch",
            among: &["activation-offload"],
            never: &["sgd", "gradient-checkpointing"],
            avoid: &["empty-cache"],
            words: &["per_device_train_batch_size: HALF_THE_BATCH"],
        },
        Case {
            name: "a ViT loop with timm's script",
            situation: training(&[Timm, Pytorch], Cause::Full, Operation::Forward),
            first: "micro-batch",
            among: &["gradient-checkpointing"],
            never: &["no-grad", "lora"],
            avoid: &[],
            words: &["--grad-checkpointing"],
        },
        Case {
            name: "Ultralytics",
            situation: training(&[Ultralytics, Pytorch], Cause::Full, Operation::Forward),
            first: "micro-batch",
            among: &[],
            never: &["fused-cross-entropy"],
            avoid: &[],
            words: &["batch="],
        },
        Case {
            name: "torchtune",
            situation: training(&[Torchtune, Pytorch], Cause::Full, Operation::Logits),
            first: "chunked-cross-entropy",
            among: &["micro-batch"],
            never: &["fused-cross-entropy"],
            avoid: &[],
            words: &["CEWithChunkedOutputLoss"],
        },
    ]
}

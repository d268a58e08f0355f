//! Image generation and its training.

use oomph_remedy::{Cause, Framework, Operation, Situation};

use super::{Case, GIB, MIB, inference, memory, of, training};

#[expect(clippy::too_many_lines, reason = "a table")]
pub fn cases() -> Vec<Case> {
    use Framework::{Automatic1111, Comfyui, Diffusers, DiffusersScripts, Forge, Kohya, Pytorch, VqganClip};
    let mut sdxl = inference(&[Diffusers, Pytorch], Cause::Full, Operation::VaeDecode);
    sdxl.memory = memory(4 * GIB, 10 * GIB, GIB, 8 * GIB, 8 * GIB);
    sdxl.settings.images = Some(4);

    let mut one_image = inference(&[Diffusers, Pytorch], Cause::TooLarge, Operation::VaeDecode);
    one_image.memory = memory(16 * GIB, 10 * GIB, 3 * GIB, 6 * GIB, 6 * GIB);
    one_image.settings.images = Some(1);

    let mut flux = inference(&[Diffusers, Pytorch], Cause::Full, Operation::Load);
    flux.memory = memory(72 * MIB, 24 * GIB, 30 * MIB, 23 * GIB, 23 * GIB);
    flux.settings.bytes_per_parameter = Some(2.0);
    flux.settings.model_parameters = Some(16_870_000_000);

    let mut webui = inference(&[Automatic1111, Pytorch], Cause::Full, Operation::Denoise);
    webui.memory = memory(512 * MIB, 4 * GIB, 0, 3 * GIB, 3 * GIB + 200 * MIB);
    webui.settings.resolution = Some((1024, 1024));

    vec![
        Case {
            name: "SDXL, four images, in the VAE",
            situation: sdxl,
            first: "vae-slicing",
            among: &["vae-tiling"],
            never: &["kv-cache-dtype", "fused-cross-entropy", "vae-on-cpu"],
            avoid: &["allocator-settings-without-slack"],
            words: &["pipe.vae.enable_slicing()"],
        },
        Case {
            name: "one huge image, in the VAE",
            situation: one_image,
            first: "vae-tiling",
            among: &["smaller-resolution"],
            never: &["vae-slicing", "model-cpu-offload"],
            avoid: &["vae-slicing-for-one-image", "medvram-for-the-vae"],
            words: &["pipe.vae.enable_tiling()"],
        },
        Case {
            name: "Flux in bf16 does not load on 24 GiB",
            situation: flux,
            first: "text-encoders-away",
            among: &["model-cpu-offload", "weights-nf4"],
            never: &["smaller-batch", "vae-slicing", "vae-tiling", "sdpa", "half-weights"],
            avoid: &["weights-do-not-fit"],
            words: &["enable_model_cpu_offload"],
        },
        Case {
            name: "AUTOMATIC1111 at 1024 on 4 GiB",
            situation: webui,
            first: "sdpa",
            among: &["model-cpu-offload"],
            never: &["lora", "half-weights"],
            avoid: &["empty-cache", "allocator-settings-without-slack"],
            words: &["--opt-sdp-attention", "--medvram"],
        },
        Case {
            name: "ComfyUI says only \"Allocation on device\"",
            situation: of(&[Comfyui, Pytorch], Cause::Unknown),
            first: "text-encoders-away",
            among: &["model-cpu-offload"],
            never: &["lora", "gradient-checkpointing", "sdpa"],
            avoid: &["empty-cache"],
            words: &[],
        },
        Case {
            name: "Forge while it denoises",
            situation: inference(&[Forge, Pytorch], Cause::Full, Operation::Denoise),
            first: "model-cpu-offload",
            among: &["partial-offload"],
            never: &["lora"],
            avoid: &[],
            words: &["--always-low-vram"],
        },
        Case {
            name: "kohya, SDXL LoRA",
            situation: training(&[Kohya, Pytorch], Cause::Full, Operation::Backward),
            first: "micro-batch",
            among: &["gradient-checkpointing"],
            never: &["chunked-cross-entropy"],
            avoid: &["empty-cache"],
            words: &["--train_batch_size"],
        },
        Case {
            name: "a Diffusers training script",
            situation: training(&[DiffusersScripts, Diffusers, Pytorch], Cause::Full, Operation::Forward),
            first: "micro-batch",
            among: &["gradient-checkpointing"],
            never: &["vae-slicing"],
            avoid: &[],
            words: &["--gradient_checkpointing"],
        },
        Case {
            name: "VQGAN-CLIP at 512 on 8 GiB",
            situation: Situation {
                memory: memory(200 * MIB, 8 * GIB, 100 * MIB, 7 * GIB, 7 * GIB + 100 * MIB),
                ..of(&[VqganClip, Pytorch], Cause::Full)
            },
            first: "fewer-cuts",
            among: &["smaller-resolution"],
            never: &["no-grad", "adam-8bit", "micro-batch"],
            avoid: &["no-grad-for-vqgan-clip"],
            words: &["-cuts"],
        },
    ]
}

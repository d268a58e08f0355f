"""Stable Diffusion 1.5 or XL: a few guided denoising steps of the UNet, then the VAE decodes."""

import argparse

import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler, UNet2DConditionModel

from common import build, device, print_peaks


def sd15_unet():
    return UNet2DConditionModel(
        sample_size=64,
        cross_attention_dim=768,
        attention_head_dim=8,
        block_out_channels=(320, 640, 1280, 1280),
    )


def sdxl_unet():
    return UNet2DConditionModel(
        sample_size=128,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(320, 640, 1280),
        transformer_layers_per_block=(1, 2, 10),
        attention_head_dim=(5, 10, 20),
        cross_attention_dim=2048,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
    )


def vae(scaling_factor):
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512),
        layers_per_block=2,
        latent_channels=4,
        sample_size=512,
        scaling_factor=scaling_factor,
    )


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["sd15", "sdxl"], default="sd15")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    xl = args.model == "sdxl"
    unet = build(sdxl_unet if xl else sd15_unet, torch.float16).eval()
    decoder = build(lambda: vae(0.13025 if xl else 0.18215), torch.float16).eval()
    scheduler = EulerDiscreteScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    print(f"unet {sum(p.numel() for p in unet.parameters()) / 1e6:.2f} M parameters")

    half = {"dtype": torch.float16, "device": device()}
    text = torch.randn(2, 77, 2048 if xl else 768, **half)
    extra = None
    if xl:
        sizes = torch.tensor([[args.size, args.size, 0, 0, args.size, args.size]] * 2, **half)
        extra = {"text_embeds": torch.randn(2, 1280, **half), "time_ids": sizes}

    scheduler.set_timesteps(args.steps, device=device())
    latents = torch.randn(1, 4, args.size // 8, args.size // 8, **half)
    for t in scheduler.timesteps:
        inputs = scheduler.scale_model_input(torch.cat([latents] * 2), t)
        noise = unet(inputs, t, encoder_hidden_states=text, added_cond_kwargs=extra, return_dict=False)[0]
        uncond, cond = noise.chunk(2)
        latents = scheduler.step(uncond + 7.5 * (cond - uncond), t, latents, return_dict=False)[0]

    image = decoder.decode(latents / decoder.config.scaling_factor, return_dict=False)[0]
    image = (image / 2 + 0.5).clamp(0, 1).cpu()
    print(f"image={tuple(image.shape)}")
    print_peaks()


if __name__ == "__main__":
    main()

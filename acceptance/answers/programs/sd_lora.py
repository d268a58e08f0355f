"""LoRA on a Stable Diffusion UNet in the shape of diffusers' script: latents by the VAE in each step, pictures at the end."""
import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from peft import LoraConfig


def models():
    unet = UNet2DConditionModel(sample_size=32, cross_attention_dim=256, attention_head_dim=8, layers_per_block=1,
                                block_out_channels=(128, 256, 256),
                                down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))
    vae = AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                        block_out_channels=(64, 128, 128, 128), layers_per_block=1, latent_channels=4, sample_size=256)
    return unet, vae


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--resolution", type=int, default=256)
    p.add_argument("--max_train_steps", type=int, default=24)
    p.add_argument("--num_validation_images", type=int, default=8)
    p.add_argument("--validation_resolution", type=int, default=512)
    args = p.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="fp16")
    unet, vae = models()
    unet.requires_grad_(False)
    vae.requires_grad_(False)
    unet.to(accelerator.device, dtype=torch.float16)
    vae.to(accelerator.device, dtype=torch.float16)
    unet.add_adapter(LoraConfig(r=4, lora_alpha=4, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
    params = [x for x in unet.parameters() if x.requires_grad]
    for x in params:
        x.data = x.data.float()
    optimizer = torch.optim.AdamW(params, lr=1e-4)
    data = [{"pixel_values": torch.full((3, args.resolution, args.resolution), i / 64)} for i in range(64)]
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    global_step, epoch = 0, 0
    while global_step < args.max_train_steps:
        for batch in loader:
            with accelerator.accumulate(unet):
                pixels = batch["pixel_values"].to(dtype=torch.float16)
                latents = vae.encode(pixels).latent_dist.sample() * vae.config.scaling_factor
                noise = torch.randn_like(latents)
                steps = torch.randint(0, 1000, (latents.shape[0],), device=latents.device).long()
                text = torch.randn(latents.shape[0], 77, 256, device=latents.device, dtype=torch.float16)
                pred = unet(scheduler.add_noise(latents, noise, steps), steps, text).sample
                loss = F.mse_loss(pred.float(), noise.float())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(params, 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                global_step += 1
            if global_step >= args.max_train_steps:
                break
        epoch += 1
    # validation: all pictures decoded at once
    unet = accelerator.unwrap_model(unet).eval()
    side = args.validation_resolution // 8
    latents = torch.randn(args.num_validation_images, 4, side, side, device="cuda", dtype=torch.float16)
    text = torch.randn(args.num_validation_images, 77, 256, device="cuda", dtype=torch.float16)
    scheduler.set_timesteps(3)
    with torch.no_grad(), torch.autocast("cuda"):
        for t in scheduler.timesteps:
            latents = scheduler.step(unet(latents, t, text).sample, t, latents).prev_sample
        images = vae.decode(latents.half() / vae.config.scaling_factor).sample
    print("validation", tuple(images.shape))
    accelerator.end_training()


if __name__ == "__main__":
    main()

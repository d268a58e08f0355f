"""LoRA for the UNet of Stable Diffusion 1.5 with Accelerate, with the options of Diffusers' script of this name."""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from peft import LoraConfig
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPTextConfig, CLIPTextModel


class Captioned(Dataset):
    """Random images with random captions, so that nothing has to be downloaded."""

    def __init__(self, count, resolution):
        self.count, self.resolution = count, resolution

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        torch.manual_seed(index)
        image = torch.rand(3, self.resolution, self.resolution) * 2 - 1
        return {"pixel_values": image, "input_ids": torch.randint(0, 49408, (77,))}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resolution", type=int, default=512)
    parser.add_argument("--train_batch_size", type=int, default=16)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--mixed_precision", choices=["no", "fp16", "bf16"], default="no")
    parser.add_argument("--use_8bit_adam", action="store_true")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--max_train_steps", type=int, default=8)
    return parser.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps, mixed_precision=args.mixed_precision
    )
    unet = UNet2DConditionModel(
        sample_size=64, cross_attention_dim=768, attention_head_dim=8, block_out_channels=(320, 640, 1280, 1280)
    )
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512),
        layers_per_block=2,
        latent_channels=4,
        sample_size=512,
    )
    text_encoder = CLIPTextModel(
        CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    )
    noise_scheduler = DDPMScheduler()
    for frozen in (unet, vae, text_encoder):
        frozen.requires_grad_(False)

    weight_dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(accelerator.mixed_precision, torch.float32)
    for frozen in (unet, vae, text_encoder):
        frozen.to(accelerator.device, dtype=weight_dtype)
    attention = ["to_k", "to_q", "to_v", "to_out.0"]
    unet.add_adapter(LoraConfig(r=args.rank, lora_alpha=args.rank, target_modules=attention))
    trained = [parameter for parameter in unet.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.data = parameter.data.float()
    if args.gradient_checkpointing:
        unet.enable_gradient_checkpointing()

    if args.use_8bit_adam:
        import bitsandbytes

        make_optimizer = bitsandbytes.optim.AdamW8bit
    else:
        make_optimizer = torch.optim.AdamW
    optimizer = make_optimizer(trained, lr=args.learning_rate)
    data = Captioned(args.train_batch_size * args.max_train_steps, args.resolution)
    loader = DataLoader(data, shuffle=True, batch_size=args.train_batch_size)
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)

    unet.train()
    for batch in loader:
        with accelerator.accumulate(unet):
            pixels = batch["pixel_values"].to(dtype=weight_dtype)
            latents = vae.encode(pixels).latent_dist.sample() * vae.config.scaling_factor
            noise = torch.randn_like(latents)
            steps = noise_scheduler.config.num_train_timesteps
            timesteps = torch.randint(0, steps, (latents.shape[0],), device=latents.device)
            noisy = noise_scheduler.add_noise(latents, noise, timesteps)
            states = text_encoder(batch["input_ids"], return_dict=False)[0]
            predicted = unet(noisy, timesteps, states, return_dict=False)[0]
            loss = F.mse_loss(predicted.float(), noise.float())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()


if __name__ == "__main__":
    main()

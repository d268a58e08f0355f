"""Unconditional diffusion in the shape of diffusers' example: train, sample a grid after the epoch, save."""
import argparse
import os

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from tqdm.auto import tqdm


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--resolution", type=int, default=64)
    p.add_argument("--train_batch_size", type=int, default=8)
    p.add_argument("--eval_batch_size", type=int, default=64)
    p.add_argument("--num_epochs", type=int, default=2)
    p.add_argument("--ddpm_num_inference_steps", type=int, default=3)
    p.add_argument("--output_dir", default="ddpm-model-64")
    return p.parse_args()


def main(args):
    accelerator = Accelerator(mixed_precision="fp16", project_dir=args.output_dir)
    model = UNet2DModel(sample_size=args.resolution, in_channels=3, out_channels=3, layers_per_block=1,
                        block_out_channels=(64, 64, 128, 128),
                        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"))
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-6)
    dataset = torch.rand(32, 3, args.resolution, args.resolution)
    loader = torch.utils.data.DataLoader([{"input": x * 2 - 1} for x in dataset], batch_size=args.train_batch_size, shuffle=True)
    lr_scheduler = get_cosine_schedule_with_warmup(optimizer, 5, len(loader) * args.num_epochs)
    model, optimizer, loader, lr_scheduler = accelerator.prepare(model, optimizer, loader, lr_scheduler)
    for epoch in range(args.num_epochs):
        model.train()
        bar = tqdm(total=len(loader), disable=not accelerator.is_local_main_process)
        bar.set_description(f"Epoch {epoch}")
        for step, batch in enumerate(loader):
            clean = batch["input"]
            noise = torch.randn_like(clean)
            timesteps = torch.randint(0, 1000, (clean.shape[0],), device=clean.device).long()
            noisy = noise_scheduler.add_noise(clean, noise, timesteps)
            with accelerator.accumulate(model):
                loss = F.mse_loss(model(noisy, timesteps).sample.float(), noise.float())
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            bar.update(1)
            bar.set_postfix(loss=loss.detach().item(), step=step)
        bar.close()
        accelerator.wait_for_everyone()
        pipeline = DDPMPipeline(unet=accelerator.unwrap_model(model), scheduler=noise_scheduler)
        images = pipeline(batch_size=args.eval_batch_size, num_inference_steps=args.ddpm_num_inference_steps,
                          output_type="np").images
        print("sampled", images.shape)
        pipeline.save_pretrained(args.output_dir)
    accelerator.end_training()


if __name__ == "__main__":
    main(parse_args())

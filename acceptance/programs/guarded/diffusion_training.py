"""Trains a small UNet of diffusers as its example does: Accelerate, checkpoints, --resume_from_checkpoint."""

import argparse
import os

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader, Dataset

import seen


class Images(Dataset):
    def __init__(self, resolution):
        self.resolution = resolution

    def __len__(self):
        return 320

    def __getitem__(self, index):
        return index, torch.full((3, self.resolution, self.resolution), index / 320)


def collate(samples):
    seen.taken(sample[0] for sample in samples)
    return torch.stack([sample[1] for sample in samples])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--train_batch_size", type=int, default=16)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--max_train_steps", type=int, default=12)
    parser.add_argument("--checkpointing_steps", type=int, default=4)
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--resume_from_checkpoint", default=None)
    args = parser.parse_args()
    seen.begin()
    torch.manual_seed(2)
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    model = UNet2DModel(
        sample_size=args.resolution, block_out_channels=(64, 128, 128),
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )
    noise_scheduler = DDPMScheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Images(args.resolution), batch_size=args.train_batch_size, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    global_step = 0
    if args.resume_from_checkpoint:
        path = os.path.basename(args.resume_from_checkpoint)
        accelerator.load_state(os.path.join(args.output_dir, path))
        global_step = int(path.split("-")[1])
        loader = accelerator.skip_first_batches(loader, global_step * args.gradient_accumulation_steps)
    for images in loader:
        with accelerator.accumulate(model):
            noise = torch.randn_like(images)
            timesteps = torch.randint(0, 1000, (len(images),), device=images.device)
            noisy = noise_scheduler.add_noise(images, noise, timesteps)
            loss = F.mse_loss(model(noisy, timesteps).sample, noise)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            global_step += 1
            if global_step % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, "checkpoint-%d" % global_step))
            if global_step >= args.max_train_steps:
                break
    seen.made(global_step)


if __name__ == "__main__":
    main()

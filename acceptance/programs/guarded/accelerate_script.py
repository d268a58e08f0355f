"""A script of Accelerate as its examples are: it saves its state every few steps, and takes --resume_from_checkpoint."""

import argparse
import os

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler

import seen


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--max_train_steps", type=int, default=20)
    parser.add_argument("--checkpointing_steps", type=int, default=5)
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--resume_from_checkpoint", default=None)
    return parser.parse_args()


def main():
    args = parse_args()
    seen.begin()
    torch.manual_seed(11)
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = seen.Numbers(400, 64, longest=1024, at=100)
    loader = DataLoader(data, batch_size=args.per_device_train_batch_size, collate_fn=seen.padded)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=args.max_train_steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    steps = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        steps = int(os.path.basename(args.resume_from_checkpoint).split("_")[-1])
        loader = accelerator.skip_first_batches(loader, steps * args.gradient_accumulation_steps)
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            steps += 1
            if steps % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, "step_%d" % steps))
        if steps >= args.max_train_steps:
            break
    seen.made(steps)


if __name__ == "__main__":
    main()

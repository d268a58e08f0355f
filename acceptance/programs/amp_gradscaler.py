"""Mixed precision with a GradScaler: how many of the steps are really taken, and the scale at the end."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    model = nn.Sequential(
        nn.Linear(args.width, args.width), nn.GELU(), nn.Linear(args.width, args.width)
    ).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(device())

    stepped = 0
    really_step = optimizer.step

    def counted_step(*args, **kwargs):
        nonlocal stepped
        stepped += 1
        return really_step(*args, **kwargs)

    optimizer.step = counted_step

    for _ in range(args.steps):
        inputs = torch.randn(args.batch_size, args.width, device=device())
        optimizer.zero_grad()
        with torch.autocast(device(), dtype=torch.float16):
            loss = nn.functional.mse_loss(model(inputs), inputs)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    print(f"stepped={stepped}")
    print(f"scale={scaler.get_scale()}")
    print_peaks()


if __name__ == "__main__":
    main()

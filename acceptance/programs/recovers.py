"""Halves its batch when it runs out of memory, and goes on: it runs, but not as it is written."""

import argparse
import gc

import torch
from torch import nn

from common import device, print_peaks


def train(batch_size, steps):
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(device())
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        inputs = torch.randn(batch_size, 1024, device=device())
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=65536)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    batch_size = args.batch_size
    while True:
        try:
            train(batch_size, args.steps)
            break
        except torch.OutOfMemoryError:
            batch_size //= 2
        gc.collect()
        torch.cuda.empty_cache()
    print(f"batch_size={batch_size}")
    print_peaks()


if __name__ == "__main__":
    main()

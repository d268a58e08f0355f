"""Batches of growing length, which fragment an ordinary cache. The allocator's setting comes from outside."""

import argparse
import os

import torch
from torch import nn

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 384, 512, 640, 768, 200, 896])
    args = parser.parse_args()

    layer = nn.TransformerEncoderLayer(args.width, 16, 4 * args.width, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device())
    optimizer = torch.optim.AdamW(model.parameters())
    for length in args.lengths:
        inputs = torch.randn(args.batch_size, length, args.width, device=device())
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    segments = torch.cuda.memory_snapshot() if torch.cuda.is_available() else []
    expandable = sum(1 for segment in segments if segment.get("is_expandable"))
    setting = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    print(f"setting={setting}")
    print(f"segments={len(segments)}")
    print(f"expandable_segments={expandable}")
    print_peaks()


if __name__ == "__main__":
    main()

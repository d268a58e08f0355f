"""A small transformer encoder under torch.compile, with or without CUDA graphs (reduce-overhead)."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--mode", choices=["default", "reduce-overhead"], default="default")
    args = parser.parse_args()

    layer = nn.TransformerEncoderLayer(
        args.width, 8, 4 * args.width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    model = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False).to(device())
    compiled = torch.compile(model, mode=args.mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    for step in range(args.steps):
        inputs = torch.randn(args.batch_size, args.seq_len, args.width, device=device())
        loss = compiled(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}")
    print_peaks()


if __name__ == "__main__":
    main()

"""A training loop that keeps every loss with its graph, so that each step needs more than the one before."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()

    layers = [nn.Sequential(nn.Linear(args.width, args.width), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(*layers).to(device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(args.steps):
        inputs = torch.randn(args.batch_size, args.width, device=device())
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        # A graph that is still referenced can only be kept whole.
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss)
    print(f"kept={len(losses)}")
    print_peaks()


if __name__ == "__main__":
    main()

"""Weights that fit and gradients that do not: a table of 8 GiB needs another 8 GiB in the backward pass."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


def train_step(table, optimizer):
    rows = torch.randint(0, table.num_embeddings, (64,), device=device())
    loss = table(rows).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2**21)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    table = nn.Embedding(args.rows, 1024, device=device())
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for step in range(args.steps):
        train_step(table, optimizer)
        print(f"step {step}")
    print_peaks()


if __name__ == "__main__":
    main()

"""What the distributed programs share: the model, the training loop, and what each rank prints.

A rank prints `rankN.resting=` (what the allocator holds between two steps, in bytes) and its peaks, one line each, in
one write, so that the lines of several ranks do not mix.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

WIDTH, HIDDEN = 1024, 4096


def local_rank():
    return int(os.environ.get("LOCAL_RANK", 0))


class Block(nn.Module):
    """The feed-forward part of a transformer: 1024 -> 4096 -> 1024."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, inputs):
        return inputs + self.down(torch.relu(self.up(inputs)))


def blocks(count=8):
    return nn.Sequential(*(Block() for _ in range(count)))


def start():
    """Join the other ranks, on this rank's card; give the rank and how many there are."""
    torch.cuda.set_device(local_rank())
    dist.init_process_group("nccl")
    return dist.get_rank(), dist.get_world_size()


def train(model, optimizer, steps=3, batch=64):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(batch, WIDTH, device="cuda")).pow(2).mean().backward()
        optimizer.step()
    optimizer.zero_grad()


def tell(rank, **more):
    """Print what this rank holds now and held at most."""
    torch.cuda.synchronize()
    facts = {
        "resting": torch.cuda.memory_allocated(),
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        **more,
    }
    sys.stdout.write("".join(f"rank{rank}.{name}={value}\n" for name, value in facts.items()))
    sys.stdout.flush()

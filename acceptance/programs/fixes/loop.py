"""A plain training loop; `--by-hand REMEDY` is the same program with that remedy written into it.

The peak of the program under a remedy that is applied from outside has to be the peak of the program written so.
"""

import argparse
import contextlib
import os
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from common import device, print_peaks


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width, depth, classes, every):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)
        self.every = every

    def forward(self, x):
        for index, block in enumerate(self.blocks):
            if self.every and index % self.every == 0:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


def make_optimizer(by_hand, model):
    parameters, lr = model.parameters(), 1e-3
    if by_hand == "adam-8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(parameters, lr=lr, weight_decay=0.01)
    if by_hand == "adafactor":
        return torch.optim.Adafactor(parameters, lr=lr, weight_decay=0.01)
    if by_hand == "sgd":
        return torch.optim.SGD(parameters, lr=lr, weight_decay=0.01)
    if by_hand == "foreach-off":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01, foreach=False)
    if by_hand == "fused-optimizer":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01, fused=True)
    if by_hand == "optimizer-in-backward":
        return InBackward(model, lr)
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)


class InBackward:
    """One optimizer for each parameter, which steps as soon as the gradient is there."""

    def __init__(self, model, lr):
        for parameter in model.parameters():
            own = torch.optim.AdamW([parameter], lr=lr, weight_decay=0.01)

            def step(parameter, own=own):
                own.step()
                own.zero_grad()

            parameter.register_post_accumulate_grad_hook(step)

    def zero_grad(self):
        pass

    def step(self):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by-hand", default="")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--classes", type=int, default=8000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--keep", action="store_true", help="keep the graphs of all losses")
    parser.add_argument("--fill", action="store_true", help="fill gradients with zeros in place of freeing them")
    args = parser.parse_args()
    by_hand = args.by_hand

    torch.manual_seed(0)
    every = {"gradient-checkpointing": 1, "checkpointing-every-n-layers": 2}.get(by_hand, 0)
    model = Net(args.width, args.depth, args.classes, every)
    model = model.to(device(), torch.bfloat16) if by_hand == "pure-bf16" else model.to(device())
    optimizer = make_optimizer(by_hand, model)
    pieces = 4 if by_hand == "micro-batch" else 1
    count = args.batch_size * args.steps
    data = TensorDataset(torch.randn(count, args.width), torch.randint(0, args.classes, (count,)))
    loader = DataLoader(data, batch_size=args.batch_size // pieces)
    criterion = nn.CrossEntropyLoss()
    losses = []

    for index, (inputs, labels) in enumerate(loader):
        inputs, labels = inputs.to(device()), labels.to(device())
        if index % pieces == 0:
            if args.fill:
                optimizer.zero_grad(set_to_none=by_hand == "zero-grad-none")
            else:
                optimizer.zero_grad()
        around = contextlib.nullcontext()
        if by_hand == "autocast":
            around = torch.autocast(device(), dtype=torch.bfloat16)
        with around:
            saved = contextlib.nullcontext()
            if by_hand == "activation-offload":
                saved = torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available())
            with saved:
                outputs = model(inputs.to(torch.bfloat16) if by_hand == "pure-bf16" else inputs)
            loss = criterion(outputs, labels)
        # A graph that is needed twice stays as long as its result.
        if pieces > 1:
            (loss / pieces).backward()
        else:
            loss.backward(retain_graph=args.keep)
        if index % pieces == pieces - 1:
            optimizer.step()
        if args.keep:
            losses.append(loss)
            if by_hand == "detach-losses":
                losses[-1] = loss.detach()
    total = sum(parameter.double().abs().sum().item() for parameter in model.parameters())
    print(f"weights={total:.10f}")
    print_peaks()


if __name__ == "__main__":
    main()

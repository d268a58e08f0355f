"""Programs whose answer is doubtful or void: a mask that nobody computed, more than the host holds, a forecast."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("case", choices=["mask", "host", "forecast"])
args = parser.parse_args()


def mask():
    """A part of a large tensor is picked by a mask that hangs on a large product."""
    rows = torch.randn(1 << 21, 128, device="cuda")
    score = rows @ torch.randn(128, 64, device="cuda")
    picked = rows[score.sum(1) > 0]
    return [picked * index for index in range(3)]


def host():
    """More is brought to the host than it has."""
    with open("/proc/meminfo") as file:
        kib = int(file.readline().split()[1])
    return torch.empty(2 * kib, 1024, dtype=torch.uint8, device="cuda").cpu()


def forecast():
    """Losses are kept with their graphs over more steps than anyone would run here."""
    model = torch.nn.Linear(1024, 1024, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(2_000_000):
        loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)


{"mask": mask, "host": host, "forecast": forecast}[args.case]()

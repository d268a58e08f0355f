"""Keeps the loss of every step with its graph, until the card is full."""

import torch
from torch import nn

import seen


def main():
    seen.begin()
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    order = torch.randperm(6400)
    losses = []
    for step in range(100):
        indices = order[step * 64:(step + 1) * 64]
        seen.taken(indices)
        batch = torch.randn(64, 8, 1024, device="cuda")
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.enable_grad():
            losses.append(model(batch).mean())
    seen.made(step + 1)


if __name__ == "__main__":
    main()

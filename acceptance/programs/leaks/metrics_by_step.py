"""Everything that a step gave, by its number, for a plot at the end."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=1024)
    return parser.parse_args()


def main():
    args = get_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = nn.Sequential(nn.Linear(512, args.hidden), nn.GELU(), nn.Linear(args.hidden, 2000)).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=3e-4)
    metrics = {}
    for step in range(101):
        x = torch.randn(1024, 512, device=device)
        y = torch.randint(0, 2000, (1024,), device=device)
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        acc = (logits.argmax(-1) == y).float().mean()
        metrics[step] = {"loss": loss, "acc": acc, "logits": logits}
        if step % 5 == 0:
            print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")
    best = min(metrics, key=lambda step: float(metrics[step]["loss"]))
    print("best step", best)


if __name__ == "__main__":
    main()

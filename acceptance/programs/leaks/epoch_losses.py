"""The step is a function that returns its loss; whoever calls it keeps what it returns."""
import torch
from torch import nn

from steps import evaluate_step, train_step


def main():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_losses, val_losses = [], []
    for step in range(101):
        x = torch.randn(512, 1024, device="cuda")
        train_losses.append(train_step(model, optimizer, x))
        val_losses += [evaluate_step(model, x)]
        if step % 5 == 0:
            print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")
    print(sum(train_losses) / len(train_losses), sum(val_losses) / len(val_losses))


if __name__ == "__main__":
    main()

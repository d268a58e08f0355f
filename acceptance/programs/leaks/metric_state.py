"""A metric that keeps predictions until they are asked for."""
import torch
from torch import nn


class AUROC:
    """Needs all predictions, so it keeps them."""

    def __init__(self):
        self.preds = []
        self.targets = []

    def update(self, preds, target):
        self.preds.append(preds)
        self.targets.append(target)

    def compute(self):
        preds, targets = torch.cat(self.preds), torch.cat(self.targets)
        order = preds[:, 0].argsort()
        return targets[order].float().cumsum(0).mean()


def train_epoch(model, optimizer, metric, steps):
    for step in range(steps):
        x = torch.randn(512, 1024, device="cuda")
        y = torch.randint(0, 2, (512,), device="cuda")
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        metric.update(out.softmax(-1), y)
        if step % 5 == 0:
            print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")


def main():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4096)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    metric = AUROC()
    train_epoch(model, optimizer, metric, 101)
    print("auroc", metric.compute())


if __name__ == "__main__":
    main()

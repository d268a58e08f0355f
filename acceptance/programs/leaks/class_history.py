"""A trainer whose history is a list in the body of its class, shared by all its objects."""

import torch
from torch import nn


class Trainer:
    history = []

    def __init__(self):
        self.model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(6)]).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, batch):
        output = self.model(batch)
        loss = output.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.history.append(output)
        return loss


def main():
    trainer = Trainer()
    for step in range(101):
        trainer.step(torch.randn(2048, 1024, device="cuda"))
        if step % 5 == 0:
            print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")


if __name__ == "__main__":
    main()

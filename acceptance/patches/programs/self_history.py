"""A trainer class that keeps what each step gave, for curves that are drawn at the end."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, lr=1e-3):
        self.model = model.cuda()
        self.loader = loader
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.history = {"loss": [], "outputs": []}
        self.best = None

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        out = self.model(x)
        loss = nn.functional.mse_loss(out, y)
        loss.backward()
        self.optimizer.step()
        self.history["loss"].append(loss)
        self.history["outputs"].append(out)
        return loss

    def fit(self, epochs):
        for epoch in range(epochs):
            total = 0
            for x, y in self.loader:
                total += self.train_step(x.cuda(), y.cuda())
            print(f"epoch {epoch}: {total / len(self.loader):.4f}")


def main():
    data = TensorDataset(torch.randn(4096, 512), torch.randn(4096, 4096))
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 4096))
    Trainer(model, DataLoader(data, batch_size=256, shuffle=True)).fit(8)


if __name__ == "__main__":
    main()

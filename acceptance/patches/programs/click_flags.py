"""Options by click, and a class for the training."""
import click
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, batch_size, lr):
        self.model = model.cuda()
        self.loader = DataLoader(TensorDataset(torch.rand(16384, 1024)), batch_size=batch_size)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def fit(self):
        for (x,) in self.loader:
            self.optimizer.zero_grad()
            loss = self.model(x.cuda()).abs().mean()
            loss.backward()
            self.optimizer.step()


@click.command()
@click.option("--batch-size", default=4096, show_default=True)
@click.option("--depth", default=48)
@click.option("--lr", default=1e-3)
def main(batch_size, depth, lr):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.Tanh()) for _ in range(depth)])
    Trainer(model, batch_size, lr).fit()


if __name__ == "__main__":
    main()

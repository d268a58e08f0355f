"""An autoencoder whose settings are in a YAML file, which is handed on in parts."""

import sys
from pathlib import Path

import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).parent


class Experiment:
    def __init__(self, config):
        self.config = config
        blocks = [nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]
        self.model = nn.Sequential(*blocks).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=float(config["optimizer"]["lr"]))
        self.loader = DataLoader(TensorDataset(torch.randn(20000, 1024)), **config["loader"])

    def train(self):
        for (x,) in self.loader:
            x = x.cuda()
            with torch.autocast("cuda", enabled=self.config["amp"]):
                loss = nn.functional.mse_loss(self.model(x), x)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "settings.yml"
    config = yaml.safe_load((ROOT / path).read_text())
    Experiment(config["train"]).train()

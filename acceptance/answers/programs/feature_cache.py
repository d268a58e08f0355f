"""Linear probe: the backbone is frozen, so its features are computed once per sample and cached by index."""
import argparse

import torch
import torch.nn as nn
import torchvision
from torch.utils.data import DataLoader, Dataset


class Indexed(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i, torch.full((3, 64, 64), i / self.n), i % 100


class Probe(nn.Module):
    def __init__(self, classes=100):
        super().__init__()
        net = torchvision.models.resnet50(weights=None)
        self.backbone = nn.Sequential(*list(net.children())[:-2])
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))
        self.cache = {}

    def forward(self, idx, x):
        missing = [n for n, i in enumerate(idx.tolist()) if i not in self.cache]
        if missing:
            with torch.no_grad():
                feats = self.backbone(nn.functional.interpolate(x[missing], scale_factor=3))
            for n, f in zip(missing, feats):
                self.cache[int(idx[n])] = f.clone()
        return self.head(torch.stack([self.cache[i] for i in idx.tolist()]))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("-n", "--samples", type=int, default=480)
    ap.add_argument("-b", "--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=3)
    opt = ap.parse_args()
    probe = Probe().to("cuda")
    loader = DataLoader(Indexed(opt.samples), batch_size=opt.batch, shuffle=True)
    optimizer = None
    for epoch in range(opt.epochs):
        total = 0.0
        for idx, x, y in loader:
            out = probe(idx, x.to("cuda"))
            if optimizer is None:
                optimizer = torch.optim.SGD(probe.head.parameters(), lr=0.01)
            loss = nn.functional.cross_entropy(out, y.to("cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print("epoch", epoch, "loss", total / len(loader), "cached", len(probe.cache))

# U-Net-ish segmentation. Keeps the predictions of the epoch to compute the IoU at its end.
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class Scenes(Dataset):
    def __init__(self, n=200):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, 64, 64, generator=g), (torch.rand(64, 64, generator=g) > 0.5).long()


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, classes=21, width=64):
        super().__init__()
        self.d1, self.d2, self.d3 = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.u2 = block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.u1 = block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.d3(self.pool(b))
        y = self.u2(torch.cat([self.up2(c), b], 1))
        y = self.u1(torch.cat([self.up1(y), a], 1))
        return self.head(y)


class Trainer:
    def __init__(self):
        self.device = "cuda"
        self.model = UNet().to(self.device)
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.loader = DataLoader(Scenes(), batch_size=8, shuffle=True, drop_last=True)
        self.history = []

    def fit(self, epochs):
        for epoch in range(epochs):
            self.outputs, self.targets = [], []
            for x, y in self.loader:
                x, y = x.to(self.device), y.to(self.device)
                pred = self.model(nn.functional.interpolate(x, size=(192, 192)))
                y = nn.functional.interpolate(y[:, None].float(), size=(192, 192))[:, 0].long()
                loss = self.criterion(pred, y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.outputs.append(pred)
                self.targets.append(y)
            self.history.append(self.iou())
            print(f"epoch {epoch}: IoU {self.history[-1]:.3f}")

    def iou(self):
        hits = sum(((p.argmax(1) == t).float().mean() for p, t in zip(self.outputs, self.targets)))
        return float(hits / len(self.outputs))


Trainer().fit(2)

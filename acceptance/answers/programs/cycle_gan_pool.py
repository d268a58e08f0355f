"""Two loaders, next(iter) with restart, an image pool of limited size, samples kept for the FID every 15 iterations."""
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random.seed(0)
device = "cuda:0"


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.InstanceNorm2d(o), nn.LeakyReLU(0.2, True))


G = nn.Sequential(conv(3, 64), conv(64, 128, 2), *[conv(128, 128) for _ in range(4)], nn.Upsample(scale_factor=2),
                  nn.Conv2d(128, 3, 3, 1, 1), nn.Tanh()).to(device)
F_ = nn.Sequential(conv(3, 64), conv(64, 128, 2), *[conv(128, 128) for _ in range(4)], nn.Upsample(scale_factor=2),
                   nn.Conv2d(128, 3, 3, 1, 1), nn.Tanh()).to(device)
D = nn.Sequential(conv(3, 64, 2), conv(64, 128, 2), nn.Conv2d(128, 1, 3, 1, 1)).to(device)
optG = torch.optim.Adam([*G.parameters(), *F_.parameters()], 2e-4)
optD = torch.optim.Adam(D.parameters(), 2e-4)
horses = DataLoader(TensorDataset(torch.rand(40, 3, 128, 128)), batch_size=4, shuffle=True)
zebras = DataLoader(TensorDataset(torch.rand(56, 3, 128, 128)), batch_size=4, shuffle=True)


class ImagePool:
    def __init__(self, size=50):
        self.size, self.images = size, []

    def query(self, x):
        for image in x:
            if len(self.images) < self.size:
                self.images.append(image[None])
            else:
                self.images[random.randrange(self.size)] = image[None]
        return torch.cat(random.sample(self.images, min(4, len(self.images))))


pool = ImagePool()
a, b = iter(horses), iter(zebras)
iteration = 0
while iteration < 30:
    try:
        (x,) = next(a)
    except StopIteration:
        a = iter(horses)
        (x,) = next(a)
    try:
        (y,) = next(b)
    except StopIteration:
        b = iter(zebras)
        (y,) = next(b)
    x, y = x.to(device), y.to(device)
    fake = G(x)
    lossG = (D(fake) - 1).pow(2).mean() + 10 * (F_(fake) - x).abs().mean() + 10 * (G(F_(y)) - y).abs().mean()
    optG.zero_grad()
    lossG.backward()
    optG.step()
    old = pool.query(fake.detach())
    lossD = (D(y) - 1).pow(2).mean() + D(old).pow(2).mean()
    optD.zero_grad()
    lossD.backward()
    optD.step()
    iteration += 1
    if iteration % 15 == 0:
        with torch.no_grad():
            samples = torch.cat([G(h.to(device)) for (h,) in horses])
        print(iteration, float(lossG), float(lossD), samples.shape)

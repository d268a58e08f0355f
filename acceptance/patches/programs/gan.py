"""A small GAN: two networks, two optimizers, two backward passes in a step."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--latent", type=int, default=100)
opt = parser.parse_args()

generator = nn.Sequential(
    nn.ConvTranspose2d(opt.latent, 512, 4), nn.BatchNorm2d(512), nn.ReLU(True),
    nn.ConvTranspose2d(512, 256, 4, 2, 1), nn.BatchNorm2d(256), nn.ReLU(True),
    nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU(True),
    nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(True),
    nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).cuda()
discriminator = nn.Sequential(
    nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.LeakyReLU(0.2),
    nn.Conv2d(128, 256, 4, 2, 1), nn.BatchNorm2d(256), nn.LeakyReLU(0.2),
    nn.Conv2d(256, 512, 4, 2, 1), nn.BatchNorm2d(512), nn.LeakyReLU(0.2), nn.Conv2d(512, 1, 4), nn.Flatten()).cuda()
criterion = nn.BCEWithLogitsLoss()
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
loader = DataLoader(TensorDataset(torch.rand(1024, 3, 64, 64) * 2 - 1), batch_size=opt.batch_size, shuffle=True)

for epoch in range(opt.epochs):
    for i, (real,) in enumerate(loader):
        real = real.cuda()
        ones, zeros = torch.ones(len(real), 1, device="cuda"), torch.zeros(len(real), 1, device="cuda")
        optimizer_d.zero_grad()
        fake = generator(torch.randn(len(real), opt.latent, 1, 1, device="cuda"))
        d_loss = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
        d_loss.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        g_loss = criterion(discriminator(fake), ones)
        g_loss.backward()
        optimizer_g.step()
    print(epoch, d_loss.item(), g_loss.item())

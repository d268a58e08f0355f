"""A GAN with the gradient penalty every 16th iteration, as StyleGAN2 does it."""
from itertools import cycle

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

Z, SIZE, BATCH, D_REG_EVERY, ITERATIONS = 128, 64, 64, 16, 20


class Generator(nn.Module):
    def __init__(self, w=64):
        super().__init__()
        layers, c = [nn.ConvTranspose2d(Z, w * 8, 4)], w * 8
        for _ in range(4):
            layers += [nn.BatchNorm2d(c), nn.ReLU(True), nn.ConvTranspose2d(c, max(c // 2, w), 4, 2, 1)]
            c = max(c // 2, w)
        self.net = nn.Sequential(*layers, nn.ReLU(True), nn.Conv2d(c, 3, 3, padding=1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Critic(nn.Module):
    def __init__(self, w=64):
        super().__init__()
        layers, c = [nn.Conv2d(3, w, 3, padding=1)], w
        for _ in range(4):
            layers += [nn.LeakyReLU(0.2), nn.Conv2d(c, min(2 * c, 512), 4, 2, 1)]
            c = min(2 * c, 512)
        self.net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(c * 16, 1))

    def forward(self, x):
        return self.net(x)


def r1_penalty(critic, real):
    real = real.detach().requires_grad_(True)
    score = critic(real)
    (grad,) = torch.autograd.grad(score.sum(), real, create_graph=True)
    return grad.pow(2).flatten(1).sum(1).mean()


def main():
    device = torch.device("cuda")
    G, D = Generator().to(device), Critic().to(device)
    g_opt = torch.optim.Adam(G.parameters(), 2e-3, betas=(0.0, 0.99))
    d_opt = torch.optim.Adam(D.parameters(), 2e-3, betas=(0.0, 0.99))
    loader = cycle(DataLoader(TensorDataset(torch.rand(256, 3, SIZE, SIZE)), batch_size=BATCH, shuffle=True))
    for i in range(1, ITERATIONS + 1):
        real = next(loader)[0].to(device)
        with torch.no_grad():
            fake = G(torch.randn(BATCH, Z, device=device))
        d_loss = nn.functional.softplus(D(fake)).mean() + nn.functional.softplus(-D(real)).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        if i % D_REG_EVERY == 0:
            d_opt.zero_grad()
            (10 / 2 * r1_penalty(D, real) * D_REG_EVERY).backward()
            d_opt.step()
        g_loss = nn.functional.softplus(-D(G(torch.randn(BATCH, Z, device=device)))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        if i % 5 == 0:
            print(f"[{i}/{ITERATIONS}] d {d_loss.item():.3f} g {g_loss.item():.3f}")


if __name__ == "__main__":
    main()

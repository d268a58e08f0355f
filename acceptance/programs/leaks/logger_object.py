"""A logger class with lists by name, as in many reinforcement learning repositories."""
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Logger:
    def __init__(self):
        self.data = defaultdict(list)

    def log(self, key, value):
        self.data[key].append(value)

    def mean(self, key):
        return sum(self.data[key]) / len(self.data[key])


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4096, 1024), nn.ReLU(), nn.Linear(1024, 128))
        self.decoder = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 4096))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, dim=-1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(z), mean, log_var


def main():
    logger = Logger()
    vae = VAE().cuda()
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.rand(101 * 256, 4096)), batch_size=256)
    for step, (x,) in enumerate(loader):
        x = x.cuda(non_blocking=True)
        recon, mean, log_var = vae(x)
        recon_loss = nn.functional.mse_loss(recon, x)
        kl = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).mean()
        loss = recon_loss + 0.1 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.log("recon", recon_loss)
        logger.log("kl", kl)
        logger.log("image", recon)
        if step % 5 == 0:
            print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")
    print(f"recon {float(logger.mean('recon')):.4f}")


if __name__ == "__main__":
    main()

"""Trains an autoencoder and adds up an error for the epoch's mean, with its graph. What the graphs keep lies between blocks
that come and go, and leaves gaps."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 400

encoder = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU()).cuda()
decoder = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1)).cuda()
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])

error = 0
for step in range(STEPS):
    pictures = torch.rand(64, 3, 64, 64).cuda()
    noisy = pictures + 0.1 * torch.randn_like(pictures)
    decoded = decoder(encoder(noisy))
    loss = F.smooth_l1_loss(decoded, pictures)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    error = error + F.mse_loss(decoded, pictures)
print("error:", float(error) / STEPS)

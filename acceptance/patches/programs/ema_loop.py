"""A moving average of the weights, and total losses that are logged."""
import copy

import torch
import torch.nn as nn

device = "cuda"
model = nn.Sequential(*[nn.Sequential(nn.Conv2d(64 if i else 3, 64, 3, padding=1), nn.SiLU()) for i in range(10)]).to(device)
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.9, 0.99))
losses = []
for step in range(150):
    x = torch.rand(8, 3, 64, 64, device=device)
    loss = (model(x) - ema(x)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()):
            p.lerp_(q, 0.01)
    losses.append((step, loss + 0.1 * model(x).mean()))
print(losses[-1][0])

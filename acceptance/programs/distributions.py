"""A variational autoencoder with torch.distributions, which checks its parameters, and checks of the program's own."""

import sys

import torch
from torch.distributions import Categorical, Normal, kl_divergence

encoder = torch.nn.Linear(2048, 2048, device="cuda")
decoder = torch.nn.Linear(1024, 2048, device="cuda")
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
steps = 0
for step in range(3):
    x = torch.rand(2048, 2048, device="cuda")
    mean, logvar = encoder(x).chunk(2, -1)
    posterior = Normal(mean, torch.exp(0.5 * logvar))
    reconstructed = decoder(posterior.rsample())
    prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
    loss = (reconstructed - x).square().mean() + kl_divergence(posterior, prior).mean()
    assert torch.isfinite(loss), "diverged"
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    chosen = Categorical(logits=reconstructed)
    likely = chosen.log_prob(chosen.sample())
    if not (likely <= 0).all():
        raise ValueError("a probability above one")
    steps += 1
print(f"steps={steps}")
# What no source of the reader's says: the sum of a large tensor is zero here and seldom on a card.
if "--strict" in sys.argv and reconstructed.abs().sum().item() == 0:
    raise ValueError("nothing was reconstructed")

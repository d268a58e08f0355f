"""retain_graph=True, copied from somewhere."""
import torch
from torch import nn

blocks = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]).cuda()
optim = torch.optim.SGD(blocks.parameters(), lr=1e-2)
for i in range(20):
    batch = torch.randn(4096, 1024, device="cuda")
    optim.zero_grad()
    loss = blocks(batch).pow(2).mean()
    loss.backward(retain_graph=True)
    optim.step()

"""Momentum contrast: the queue of keys keeps the graphs of the key encoder, which runs with gradients."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

query_encoder = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 128)).cuda()
key_encoder = copy.deepcopy(query_encoder)
optimizer = torch.optim.SGD(query_encoder.parameters(), lr=0.03, momentum=0.9)
queue = F.normalize(torch.randn(16384, 128, device="cuda"), dim=1)

for step in range(101):
    images = torch.randn(512, 1024, device="cuda")
    q = F.normalize(query_encoder(images), dim=1)
    k = F.normalize(key_encoder(images + 0.1 * torch.randn_like(images)), dim=1)

    positive = (q * k.detach()).sum(1, keepdim=True)
    negative = q @ queue.detach().t()
    logits = torch.cat([positive, negative], dim=1) / 0.07
    loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    with torch.no_grad():
        for p_q, p_k in zip(query_encoder.parameters(), key_encoder.parameters()):
            p_k.data.mul_(0.999).add_(p_q.data, alpha=0.001)
    queue = torch.cat([queue, k])[-16384:]
    if step % 5 == 0:
        print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")

"""Copies of the weights for an average at the end, all of them on the card."""
import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
snapshots = []
for step in range(101):
    x = torch.randn(128, 512, device="cuda")
    y = torch.randint(0, 100, (128,), device="cuda")
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    snapshots.append(copy.deepcopy(model.state_dict()))
    if step % 5 == 0:
        print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")
average = {key: sum(state[key] for state in snapshots) / len(snapshots) for key in snapshots[0]}
model.load_state_dict(average)

"""Instance discrimination: each epoch makes a bank of all embeddings, the next epoch takes its negatives from it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, N, BATCH = 4096, 12000, 400
encoder = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, DIM)).cuda()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.03, momentum=0.9)
data = torch.randn(N, 512)

bank = None
for epoch in range(3):
    order = torch.randperm(N)
    rows = []
    i = 0
    while i < N:
        x = data[order[i:i + BATCH]].cuda()
        z = F.normalize(encoder(x), dim=1)
        if bank is not None:
            logits = z @ bank[:8192].t() / 0.07
        else:
            logits = z @ z.t() / 0.07
        loss = F.cross_entropy(logits, torch.arange(len(x), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append(z.detach())
        i += BATCH
    bank = torch.cat(rows)
    print(f"epoch {epoch} loss {loss.item():.4f} bank {tuple(bank.shape)}")

"""Multi-label tagging; an AUROC over the epoch (thresholds=None, the default) keeps all scores until it is computed."""
import torch
import torch.nn as nn
from torchmetrics.classification import MultilabelAUROC

LABELS, BATCH = 4096, 128
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, LABELS)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
auroc = MultilabelAUROC(num_labels=LABELS, average="macro", thresholds=None).cuda()

x = torch.randn(60 * BATCH, 256)
y = (torch.rand(60 * BATCH, 1) > torch.linspace(0.5, 0.99, LABELS)).to(torch.uint8)
for step in range(60):
    rows = slice(step * BATCH, (step + 1) * BATCH)
    xb, yb = x[rows].cuda(), y[rows].cuda()
    logits = model(xb)
    loss = criterion(logits, yb.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    auroc.update(logits.detach(), yb.long())
    if (step + 1) % 20 == 0:
        print(step + 1, loss.item())
torch.save(model.state_dict(), "tagger.pt")

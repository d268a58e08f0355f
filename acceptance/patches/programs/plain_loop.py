"""A convolutional classifier: the batch is a constant at the top."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from tools import build_model

BATCH_SIZE = 64
EPOCHS = 2

dataset = TensorDataset(torch.rand(256, 3, 64, 64), torch.randint(0, 10, (256,)))
loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)
model = build_model(width=96).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))

for epoch in range(EPOCHS):
    total = 0.0
    for images, labels in loader:
        images, labels = images.cuda(), labels.cuda()
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total += loss.item()
    print(epoch, total / len(loader))

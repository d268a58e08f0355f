"""A classifier whose validation forgets torch.no_grad()."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")
model = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
).to(device)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
train_loader = DataLoader(TensorDataset(torch.rand(128, 3, 64, 64), torch.randint(0, 10, (128,))), batch_size=32)
val_loader = DataLoader(TensorDataset(torch.rand(512, 3, 64, 64), torch.randint(0, 10, (512,))), batch_size=32)

for epoch in range(2):
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()

    model.eval()
    val_loss, preds = 0.0, []
    for images, labels in val_loader:
        outputs = model(images.to(device))
        val_loss += criterion(outputs, labels.to(device))
        preds.append(outputs)
    print(f"epoch {epoch}: {float(val_loss) / len(val_loader):.3f}", len(preds))

"""Transfer learning in two stages: the head alone for three epochs, then the whole network."""
import torch
import torchvision
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


def build_model(num_classes):
    model = torchvision.models.efficientnet_b0(weights=None)
    model.classifier[1] = nn.Linear(model.classifier[1].in_features, num_classes)
    set_trainable(model.features, False)
    return model


def train_one_epoch(model, loader, criterion, optimizer, device):
    model.train()
    running, seen = 0.0, 0
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        running += loss.item() * x.size(0)
        seen += x.size(0)
    return running / seen


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    return sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader) / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(42)
    device = "cuda"
    EPOCHS, UNFREEZE_AT = 5, 3
    ds = TensorDataset(torch.rand(128, 3, 96, 96), torch.randint(0, 12, (128,)))
    val = TensorDataset(torch.rand(64, 3, 96, 96), torch.randint(0, 12, (64,)))
    train_dl = DataLoader(ds, batch_size=32, shuffle=True)
    val_dl = DataLoader(val, batch_size=32)
    model = build_model(12).to(device)
    optimizer = optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(EPOCHS):
        if epoch == UNFREEZE_AT:
            set_trainable(model.features, True)
            optimizer = optim.Adam(model.parameters(), lr=1e-4)
        loss = train_one_epoch(model, train_dl, criterion, optimizer, device)
        print(f"{epoch + 1}/{EPOCHS} loss {loss:.4f} acc {evaluate(model, val_dl, device):.3f}")

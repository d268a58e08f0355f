"""ViT from a YAML file; the validation keeps the graphs of its losses, and training dies before it."""
import argparse
import yaml
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.models import vit_b_16


class FakeImages(Dataset):
    def __init__(self, n, size, classes):
        self.n, self.size, self.classes = n, size, classes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, self.size, self.size, generator=g), i % self.classes


def evaluate(model, loader, device):
    model.eval()
    correct, total, losses = 0, 0, []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        losses.append(F.cross_entropy(out, y))
        correct += (out.argmax(1) == y).sum()
        total += y.size(0)
    return correct.item() / total, torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.yaml")
    parser.add_argument("--epochs", type=int, default=None)
    args = parser.parse_args()
    with open(args.config) as f:
        cfg = yaml.safe_load(f)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = vit_b_16(num_classes=cfg["model"]["classes"]).to(device)
    train = DataLoader(FakeImages(cfg["data"]["train"], 224, 100), batch_size=cfg["train"]["batch_size"], shuffle=True, drop_last=True, num_workers=2)
    val = DataLoader(FakeImages(cfg["data"]["val"], 224, 100), batch_size=cfg["train"]["eval_batch_size"])
    opt = torch.optim.AdamW(model.parameters(), lr=float(cfg["train"]["lr"]), weight_decay=0.05)
    epochs = args.epochs or cfg["train"]["epochs"]
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs * len(train))
    best = 0
    for epoch in range(epochs):
        model.train()
        for i, (x, y) in enumerate(train):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if i % 20 == 0:
                print(f"epoch {epoch} step {i} loss {loss.item():.4f}")
        acc, vloss = evaluate(model, val, device)
        print(f"epoch {epoch} acc {acc:.3f} val loss {vloss:.4f}")
        if acc >= best:
            best = acc
            torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main()

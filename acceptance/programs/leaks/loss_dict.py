"""A detector's dictionary of losses, added up by name."""
import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU())
        self.cls = nn.Conv2d(64, 20, 1)
        self.box = nn.Conv2d(64, 4, 1)

    def forward(self, images, targets):
        features = self.backbone(images)
        return {
            "loss_classifier": self.cls(features).pow(2).mean(),
            "loss_box_reg": (self.box(features) - targets).abs().mean(),
            "loss_objectness": features.sigmoid().mean(),
        }


def train(model, steps=101):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9)
    totals = {}
    for step in range(steps):
        images = torch.rand(4, 3, 128, 128, device="cuda")
        targets = torch.rand(4, 4, 64, 64, device="cuda")
        loss_dict = model(images, targets)
        loss = loss_dict["loss_classifier"] + loss_dict["loss_box_reg"]
        for name, value in loss_dict.items():
            totals[name] = totals.get(name, 0) + value
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")
    print({name: float(total) / steps for name, total in totals.items()})


if __name__ == "__main__":
    train(Detector().cuda())

"""Two losses share a trunk, so the first backward pass retains the graph; both histories keep the tensors."""
import torch
from torch import nn

trunk = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()).cuda()
seg_head = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 8, 1)).cuda()
cls_head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda()
params = [*trunk.parameters(), *seg_head.parameters(), *cls_head.parameters()]
optimizer = torch.optim.AdamW(params, lr=1e-3)
history = {"seg": [], "cls": []}

for step in range(101):
    images = torch.rand(8, 3, 96, 96, device="cuda")
    masks = torch.randint(0, 8, (8, 96, 96), device="cuda")
    labels = torch.randint(0, 10, (8,), device="cuda")

    features = trunk(images)
    seg_loss = nn.functional.cross_entropy(seg_head(features), masks)
    cls_loss = nn.functional.cross_entropy(cls_head(features), labels)

    optimizer.zero_grad()
    seg_loss.backward(retain_graph=True)
    cls_loss.backward()
    optimizer.step()

    history["seg"].append(seg_loss)
    history["cls"].append(cls_loss)
    if step % 5 == 0:
        print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated")

print("last:", float(history["seg"][-1]), float(history["cls"][-1]))

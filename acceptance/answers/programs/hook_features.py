"""Look at what layer1 does while the network trains: a forward hook stores its output."""
import torch
import torchvision
from torch import nn
from tqdm import tqdm

features = []


def save_output(module, inputs, output):
    features.append(output.detach())


model = torchvision.models.resnet18(weights=None).cuda()
model.layer1.register_forward_hook(save_output)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
loss_fn = nn.CrossEntropyLoss()

batches = [(torch.rand(32, 3, 112, 112), torch.randint(1000, (32,))) for _ in range(10)]
for epoch in range(6):
    bar = tqdm(batches, desc=f"epoch {epoch}")
    for images, labels in bar:
        images, labels = images.cuda(), labels.cuda()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(images), labels)
        loss.backward()
        optimizer.step()
        bar.set_postfix(loss=loss.item())
print("kept", len(features), "feature maps")

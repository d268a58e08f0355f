"""Trains with small batches, and evaluates with one of 256 images and without `no_grad`."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import seen


class Images(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return index, torch.full((3, 64, 64), index / 256), index % 10


def training(samples):
    seen.taken(sample[0] for sample in samples)
    return validation(samples)


def validation(samples):
    return torch.stack([sample[1] for sample in samples]), torch.tensor([sample[2] for sample in samples])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
        )

    def forward(self, images):
        return self.body(images)


def evaluate(model, loader):
    model.eval()
    correct = 0
    for images, labels in loader:
        logits = model(images.cuda())
        correct += (logits.argmax(1) == labels.cuda()).sum().item()
    return correct


def main():
    seen.begin()
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    train = DataLoader(Images(), batch_size=16, shuffle=True, collate_fn=training)
    valid = DataLoader(Images(), batch_size=256, collate_fn=validation)
    steps = 0
    for epoch in range(2):
        model.train()
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps += 1
        print("correct:", evaluate(model, valid))
    seen.made(steps)


if __name__ == "__main__":
    main()

"""A ViT or a ConvNeXt of torchvision learns to classify images, in plain PyTorch and fp32."""

import argparse

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Random images with random labels."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.rand(3, self.size, self.size), index % 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="vit_b_16")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    device = torch.device("cuda")
    model = getattr(torchvision.models, args.model)().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(Images(args.batch_size * args.steps, args.size), batch_size=args.batch_size, shuffle=True)

    model.train()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

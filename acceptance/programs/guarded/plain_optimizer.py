"""A loop as people write it. It dies in the optimizer's first step, where AdamW makes its state."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import seen


class Vectors(Dataset):
    def __init__(self, count, width):
        self.values = torch.randn(count, width)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return index, self.values[index], index % 10


def collate(samples):
    indices, vectors, labels = zip(*samples)
    seen.taken(indices)
    return torch.stack(vectors), torch.tensor(labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    seen.begin()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = []
    for _ in range(8):
        layers += [nn.Linear(4096, 4096), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(4096, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Vectors(320, 4096), batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    steps = 0
    for epoch in range(args.epochs):
        for inputs, labels in loader:
            inputs, labels = inputs.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            steps += 1
    seen.made(steps)


if __name__ == "__main__":
    main()

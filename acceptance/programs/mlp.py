"""An MLP classifier, trained with Adam."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()

    layers = [nn.Linear(784, args.width), nn.ReLU()]
    for _ in range(args.depth):
        layers += [nn.Linear(args.width, args.width), nn.ReLU(), nn.Dropout(0.1)]
    model = nn.Sequential(*layers, nn.Linear(args.width, 10)).to(device())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    for step in range(args.steps):
        inputs = torch.randn(args.batch_size, 784, device=device())
        labels = torch.randint(0, 10, (args.batch_size,), device=device())
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")
    print_peaks()


if __name__ == "__main__":
    main()

"""A small convolutional network with batch norm, trained with SGD."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()

    model = nn.Sequential(
        block(3, 64),
        block(64, 128),
        block(128, 256),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 10),
    ).to(device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for step in range(args.steps):
        images = torch.randn(args.batch_size, 3, args.size, args.size).to(device())
        labels = torch.randint(0, 10, (args.batch_size,)).to(device())
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")

    model.eval()
    with torch.no_grad():
        model(torch.randn(args.batch_size, 3, args.size, args.size, device=device())).argmax(1)
    print_peaks()


if __name__ == "__main__":
    main()

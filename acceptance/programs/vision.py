"""Train ResNet-50 or ConvNeXt-Tiny of torchvision, in fp32, with AMP, in channels_last."""

import argparse

import torch
import torchvision
from torch import nn

from common import device, print_peaks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["resnet50", "convnext_tiny"], default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()

    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = getattr(torchvision.models, args.model)().to(device(), memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler(device(), enabled=args.amp)

    for step in range(args.steps):
        images = torch.randn(args.batch_size, 3, args.size, args.size)
        images = images.to(device(), memory_format=layout)
        labels = torch.randint(0, 1000, (args.batch_size,)).to(device())
        optimizer.zero_grad()
        with torch.autocast(device(), enabled=args.amp):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step} loss {loss.item():.3f}")
    print_peaks()


if __name__ == "__main__":
    main()

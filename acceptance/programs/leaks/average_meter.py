"""The AverageMeter of the ImageNet example, given tensors in place of numbers."""
import torch
import torch.nn as nn


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self, name, fmt=":f"):
        self.name = name
        self.fmt = fmt
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return fmtstr.format(**self.__dict__)


def consistency(model, images):
    """How far two views of the same images are apart; only looked at."""
    return (model(images) - model(images.flip(-1))).pow(2).mean()


def train(model, optimizer, criterion, steps):
    losses = AverageMeter("Loss", ":.4e")
    gaps = AverageMeter("Gap", ":6.2f")
    model.train()
    for i in range(steps):
        images = torch.rand(16, 3, 64, 64, device="cuda")
        target = torch.randint(0, 10, (16,), device="cuda")
        output = model(images)
        loss = criterion(output, target)

        gap = consistency(model, images)
        losses.update(loss, images.size(0))
        gaps.update(gap, images.size(0))

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 5 == 0:
            print(f"step {i}: {torch.cuda.memory_allocated()} bytes allocated", losses, gaps)


def main():
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).cuda()  # fmt: skip
    train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), nn.CrossEntropyLoss(), 101)


if __name__ == "__main__":
    main()

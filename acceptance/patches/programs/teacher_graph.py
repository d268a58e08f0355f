"""Distils a wide network into a narrow one."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network(width, depth):
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100))


def distillation_loss(student_logits, teacher_logits, labels, temperature):
    soft = F.kl_div(
        F.log_softmax(student_logits / temperature, dim=1),
        F.softmax(teacher_logits / temperature, dim=1),
        reduction="batchmean",
    )
    return 0.7 * soft * temperature**2 + 0.3 * F.cross_entropy(student_logits, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()

    teacher = network(width=256, depth=12).cuda().eval()
    student = network(width=32, depth=4).cuda()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    data = TensorDataset(torch.randn(512, 3, 64, 64), torch.randint(0, 100, (512,)))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    for epoch in range(args.epochs):
        for images, labels in loader:
            images, labels = images.cuda(), labels.cuda()
            optimizer.zero_grad()
            student_logits = student(images)
            teacher_logits = teacher(images)
            loss = distillation_loss(student_logits, teacher_logits, labels, temperature=4.0)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

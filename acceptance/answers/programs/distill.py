"""Distillation: the teacher runs without gradients inside each training step; global_step decides when to save."""
import os

import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    """Records from a queue: nobody knows how many there are."""

    def __iter__(self):
        for i in range(640):
            yield torch.full((3, 112, 112), (i % 255) / 255), i % 1000


class Distiller:
    def __init__(self, out="distilled", temperature=4.0, save_steps=10, max_steps=25):
        self.teacher = torchvision.models.resnet50(weights=None).eval().requires_grad_(False).cuda()
        self.student = torchvision.models.resnet18(weights=None).cuda()
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.1, momentum=0.9)
        self.t, self.out, self.save_steps, self.max_steps = temperature, out, save_steps, max_steps
        self.global_step, self.running = 0, 0.0

    def step(self, x, y):
        with torch.no_grad():
            teacher = self.teacher(x)
        student = self.student(x)
        soft = F.kl_div(F.log_softmax(student / self.t, 1), F.softmax(teacher / self.t, 1), reduction="batchmean") * self.t ** 2
        loss = 0.7 * soft + 0.3 * F.cross_entropy(student, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def save(self):
        os.makedirs(self.out, exist_ok=True)
        torch.save(self.student.state_dict(), os.path.join(self.out, f"step-{self.global_step}.pt"))

    def fit(self):
        loader = DataLoader(Stream(), batch_size=32)
        while self.global_step < self.max_steps:
            for x, y in loader:
                self.running += float(self.step(x.cuda(), y.cuda()))
                self.global_step += 1
                if self.global_step % self.save_steps == 0:
                    print(self.global_step, self.running / self.global_step)
                    self.save()
                if self.global_step >= self.max_steps:
                    break


if __name__ == "__main__":
    Distiller().fit()

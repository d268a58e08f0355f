"""Batches are brought to the card on a stream of their own while the model computes on another (`record_stream`)."""

import argparse

import torch
from torch import nn

from common import device, print_peaks


class Prefetcher:
    """Hands out batches that were copied, and enlarged, in parallel with the computation."""

    def __init__(self, count, batch_size, width):
        self.count, self.shape = count, (batch_size, width)
        self.stream = torch.cuda.Stream()
        self.fetch()

    def fetch(self):
        self.count -= 1
        with torch.cuda.stream(self.stream):
            batch = torch.randn(self.shape).to(device(), non_blocking=True)
            self.next = torch.cat([batch, batch.flip(0)])

    def __iter__(self):
        while self.count >= 0:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.next
            batch.record_stream(torch.cuda.current_stream())
            self.fetch()
            yield batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()

    layers = [nn.Sequential(nn.Linear(args.width, args.width), nn.ReLU()) for _ in range(6)]
    model = nn.Sequential(*layers).to(device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in Prefetcher(args.steps, args.batch_size, args.width):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
    print_peaks()


if __name__ == "__main__":
    main()

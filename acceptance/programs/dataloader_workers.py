"""Training data comes from two DataLoader workers, forked or spawned, through a collate function and pinned memory.

A batch is larger than what the virtual GPU copies; its labels are not.
"""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

from common import device, print_peaks


class Images(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        assert get_worker_info() is not None
        return torch.full((3, 96, 96), float(index)), index % 10, os.getpid()


def stacked(samples):
    images, labels, pids = zip(*samples)
    return torch.stack(images), torch.tensor(labels), torch.tensor(pids)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).to(device())
    model(torch.zeros(1, 3, 96, 96, device=device()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Images(80),
        batch_size=16,
        collate_fn=stacked,
        num_workers=args.workers,
        multiprocessing_context=args.start,
        pin_memory=torch.cuda.is_available(),
    )
    workers, seen = set(), 0
    for images, labels, pids in loader:
        workers.update(pids.tolist())
        seen += len(images)
        images = images.to(device(), non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels.to(device(), non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert os.getpid() not in workers
    print(f"workers={len(workers)}")
    print(f"samples={seen}")
    print_peaks()


if __name__ == "__main__":
    main()

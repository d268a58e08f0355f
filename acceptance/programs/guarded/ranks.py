"""DistributedDataParallel by torchrun; every rank has batches that are too large for its card."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import seen


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return index, torch.full((256, 1024), index / 512)


def collate(samples):
    seen.taken(sample[0] for sample in samples)
    return torch.stack([sample[1] for sample in samples])


def main():
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    seen.begin()
    body = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(12)]).cuda()
    model = DistributedDataParallel(body, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = Rows()
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=32, sampler=sampler, collate_fn=collate)
    steps = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = batch.cuda()
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    if rank == 0:
        seen.made(steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

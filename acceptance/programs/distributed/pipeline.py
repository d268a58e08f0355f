"""A pipeline of two or more stages: an embedding in the first, a head in the last."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import ranks

VOCABULARY, LENGTH, MICRO_BATCHES = 50_000, 128, 4


def stage_module(rank, world):
    layers = [ranks.Block() for _ in range(8 // world)]
    if rank == 0:
        layers.insert(0, nn.Embedding(VOCABULARY, ranks.WIDTH))
    if rank == world - 1:
        layers.append(nn.Linear(ranks.WIDTH, VOCABULARY, bias=False))
    return nn.Sequential(*layers).cuda()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    rank, world = ranks.start()
    stage = PipelineStage(stage_module(rank, world), rank, world, torch.device("cuda", ranks.local_rank()))
    loss = lambda output, target: nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
    schedule = Schedule1F1B(stage, n_microbatches=MICRO_BATCHES, loss_fn=loss)
    optimizer = torch.optim.Adam(stage.submod.parameters())
    for _ in range(args.steps):
        optimizer.zero_grad()
        tokens = torch.randint(0, VOCABULARY, (2 * MICRO_BATCHES, LENGTH), device="cuda")
        if rank == 0:
            schedule.step(tokens)
        elif rank == world - 1:
            schedule.step(target=tokens)
        else:
            schedule.step()
        optimizer.step()
    optimizer.zero_grad()
    ranks.tell(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

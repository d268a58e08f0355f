"""Ranks that the program itself starts, on one machine, with `torch.multiprocessing.spawn`."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import ranks
import train


def main(rank, world, port):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    os.environ["LOCAL_RANK"] = str(rank)
    model = train.ddp(ranks.blocks(), world)
    ranks.train(model, torch.optim.Adam(model.parameters()))
    ranks.tell(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--port", type=int, default=29_511)
    args = parser.parse_args()
    multiprocessing.spawn(main, args=(args.ranks, args.port), nprocs=args.ranks)

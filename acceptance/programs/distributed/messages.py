"""Messages between the ranks of a job through gloo, and a small training through NCCL: how the large trainers do it.

Every rank contributes what does not depend on it, so that what comes out is the same whichever ranks run.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks


def objects(rank, world, group):
    """What is gathered, scattered and broadcast as objects: how many of them came out right."""
    right = 0
    names = [None] * world
    dist.all_gather_object(names, {"of": "a rank"}, group=group)
    right += sum(name == {"of": "a rank"} for name in names)
    received = ["from rank 0" if rank == 0 else None]
    dist.broadcast_object_list(received, src=0, group=group)
    right += received == ["from rank 0"]
    gathered = [None] * world if rank == 0 else None
    dist.gather_object("a state", gathered, dst=0, group=group)
    right += rank != 0 or gathered == ["a state"] * world
    share = [None]
    dist.scatter_object_list(share, list(range(world)) if rank == 0 else None, src=0, group=group)
    right += share == [rank]
    return right


def tensors(rank, world, group):
    """What is summed, compared and gathered in the host's memory: how many of them came out right."""
    right = 0
    tokens = torch.tensor([7, 3])
    dist.all_reduce(tokens, group=group)
    right += tokens.tolist() == [7 * world, 3 * world]
    loss = torch.tensor(0.5)
    dist.all_reduce(loss, op=dist.ReduceOp.MAX, group=group)
    right += loss.item() == 0.5
    parts = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(parts, torch.ones(2), group=group)
    right += all(part.sum() == 2 for part in parts)
    whole = torch.zeros(2 * world)
    dist.all_gather_into_tensor(whole, torch.ones(2), group=group)
    right += whole.sum() == 2 * world
    received = torch.full((3,), float(rank == 0))
    dist.broadcast(received, src=0, group=group)
    right += received.sum() == 3
    part = torch.zeros(2)
    dist.reduce_scatter(part, [torch.ones(2) for _ in range(world)], group=group)
    right += part.tolist() == [world, world]
    return int(right)


def main():
    torch.cuda.set_device(ranks.local_rank())
    # Gloo for what lies in the host's memory, NCCL for the cards.
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    apart = dist.new_group(backend="gloo")
    model = DistributedDataParallel(ranks.blocks(2).cuda(), device_ids=[ranks.local_rank()])
    optimizer = torch.optim.Adam(model.parameters())
    ranks.train(model, optimizer)
    facts = {"resting": torch.cuda.memory_allocated()}
    for name, group in (("both", None), ("gloo", apart)):
        facts[name + "_tensors"] = tensors(rank, world, group)
    facts["gloo_objects"] = objects(rank, world, apart)
    dist.monitored_barrier(apart)
    dist.barrier()
    ranks.tell(rank, **facts)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""The same small training by several methods of spreading it over cards."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import ranks


def ddp(model, world):
    return DistributedDataParallel(model.cuda(), device_ids=[ranks.local_rank()])


def fsdp1(model, world):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({ranks.Block}), device_id=ranks.local_rank()
    )


def fsdp2(model, world, **options):
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (world,))
    for block in model:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fsdp2_offload(model, world):
    from torch.distributed.fsdp import CPUOffloadPolicy

    return fsdp2(model, world, offload_policy=CPUOffloadPolicy())


def tensor_parallel(model, world):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (world,))
    model = model.cuda()
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


METHODS = {
    "ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2, "fsdp2-offload": fsdp2_offload, "tensor-parallel": tensor_parallel,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    rank, world = ranks.start()
    model = METHODS[args.method](ranks.blocks(), world)
    optimizer = torch.optim.Adam(model.parameters())
    ranks.train(model, optimizer, args.steps)
    resting = torch.cuda.memory_allocated()
    # What is read back and sent between processes has to come out right as well.
    counted = torch.ones((), device="cuda")
    dist.all_reduce(counted)
    names = [None] * world
    dist.all_gather_object(names, {"rank": rank})
    dist.barrier()
    ranks.tell(rank, resting=resting, counted=int(counted), gathered=sum(name is not None for name in names))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Provokes each form of PyTorch's out-of-memory message, and prints the allocator's own statistics with it.

For each form one line `shape {"name": ..., "message": ..., "statistics": {...}}`, or `shape {"name": ..., "skipped":
...}` where this release of PyTorch has no such form. The statistics are taken at the moment of the failure, so that
every figure of the message can be compared with them.
"""

import argparse
import json
import os
import subprocess
import sys

import torch

MIB = 2**20
GIB = 2**30


def statistics():
    free, capacity = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    private = [segment for segment in torch.cuda.memory_snapshot() if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)]
    return {
        "device": torch.cuda.current_device(),
        "capacity_bytes": capacity,
        "free_bytes": free,
        "allocated_bytes": stats["allocated_bytes.all.current"],
        "reserved_bytes": stats["reserved_bytes.all.current"],
        "private_pools_bytes": sum(segment["total_size"] - segment["allocated_size"] for segment in private),
        "private_segments_bytes": sum(segment["total_size"] for segment in private),
    }


def fails(allocate):
    """The message of the failure and the statistics at that moment."""
    try:
        kept = allocate()
    except torch.cuda.OutOfMemoryError as error:
        return {"message": str(error), "type": type(error).__module__ + "." + type(error).__name__, "statistics": statistics()}
    del kept
    raise AssertionError("this allocation was meant to fail")


def fill(share):
    """Tensors that take this share of the free memory, in pieces of 256 MiB."""
    free, _ = torch.cuda.mem_get_info()
    return [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(int(free * share) // (256 * MIB))]


def plain():
    kept = fill(0.9)
    slack = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
    tail = slack[:1].clone()
    del slack
    result = fails(lambda: torch.empty(20 * GIB, dtype=torch.uint8, device="cuda"))
    return result, (kept, tail)


def small():
    """A request of 5 MiB is reported as the 20 MiB segment that it needs."""
    kept = []
    return fails(lambda: [kept.append(torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")) for _ in range(10**6)]), kept


def fraction():
    torch.cuda.set_per_process_memory_fraction(0.25)
    try:
        _, capacity = torch.cuda.mem_get_info()
        kept = torch.empty(capacity // 8, dtype=torch.uint8, device="cuda")
        return fails(lambda: torch.empty(capacity // 5, dtype=torch.uint8, device="cuda")), kept
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def private_pools():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scratch = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        result = scratch[:1] + 1
        del scratch
    return fails(lambda: torch.empty(200 * GIB, dtype=torch.uint8, device="cuda")), (graph, result)


def mem_pool():
    if not hasattr(torch.cuda, "MemPool") or not hasattr(torch.cuda, "use_mem_pool"):
        return {"skipped": "no torch.cuda.MemPool"}, None
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
        return fails(lambda: torch.empty(200 * GIB, dtype=torch.uint8, device="cuda")), (pool, kept)


def other_process():
    """A second process holds 3 GiB of the card."""
    program = (
        "import sys, torch; kept = torch.empty(3 * 2**30, dtype=torch.uint8, device='cuda'); "
        "print('ready', flush=True); sys.stdin.readline()"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        result = fails(lambda: torch.empty(200 * GIB, dtype=torch.uint8, device="cuda"))
        result["other_pid"] = other.pid
        return result, None
    finally:
        other.communicate("\n")


def more_than_an_exabyte():
    storage = torch.UntypedStorage
    return fails(lambda: storage(2**60, device="cuda")), None


SHAPES = {
    "plain": plain,
    "small": small,
    "fraction": fraction,
    "private-pools": private_pools,
    "mem-pool": mem_pool,
    "other-process": other_process,
    "more-than-1eb": more_than_an_exabyte,
}


def alone(name):
    """Each form in a process of its own, since a failure leaves the allocator in another state."""
    environment = dict(os.environ)
    shape = name
    if name == "expandable":
        shape = "plain"
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    result = subprocess.run(
        [sys.executable, __file__, "--shape", shape, "--name", name], env=environment, stdout=subprocess.PIPE, text=True
    )
    sys.stdout.write(result.stdout)
    sys.stdout.flush()
    return result.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--name")
    parser.add_argument("--only", nargs="+", default=[*SHAPES, "expandable"])
    args = parser.parse_args()
    if args.shape is None:
        sys.exit(max(alone(name) for name in args.only))
    torch.empty(1, device="cuda")
    result, _kept = SHAPES[args.shape]()
    print("shape " + json.dumps({"name": args.name, "torch": torch.__version__, **result}))


if __name__ == "__main__":
    main()

"""Gloo in a job of which not all ranks run: what is asked of the whole group comes out as if they did."""

import importlib.util
import os
import socket
import subprocess
import sys
import unittest

import support

WORLD, RUNNING = 6, (0, 1, 5)

PROGRAM = """
import sys, torch
from oomph import ranks
ranks.install("0,1,last")
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

total = torch.tensor([7, 3])
dist.all_reduce(total)
assert total.tolist() == [7 * world, 3 * world], total
mean = torch.tensor(0.25)
dist.all_reduce(mean)
assert mean.item() == 0.25 * world, mean
most = torch.tensor(rank)
dist.all_reduce(most, op=dist.ReduceOp.MAX)
assert most.item() == 5, most
at_root = torch.ones(2)
dist.reduce(at_root, dst=5)
assert rank != 5 or at_root.tolist() == [world, world], at_root

# An absent rank is like the nearest one before it that runs.
parts = [torch.zeros(1) for _ in range(world)]
dist.all_gather(parts, torch.tensor([float(rank)]))
assert [int(part) for part in parts] == [0, 1, 1, 1, 1, 5], parts
whole = torch.zeros(world)
dist.all_gather_into_tensor(whole, torch.tensor([float(rank)]))
assert whole.tolist() == [0, 1, 1, 1, 1, 5], whole
names = [None] * world
dist.all_gather_object(names, {"rank": "r" * (rank + 1)})
assert [len(name["rank"]) for name in names] == [1, 2, 2, 2, 2, 6], names

for source, like in ((0, 0), (1, 1), (3, 1), (5, 5)):
    sent = torch.tensor(rank)
    dist.broadcast(sent, src=source)
    assert sent.item() == like, (source, sent)
gathered = [None] * world if rank == 1 else None
dist.gather_object(rank, gathered, dst=1)
assert rank != 1 or gathered == [0, 1, 1, 1, 1, 5], gathered
share = [None]
dist.scatter_object_list(share, list("abcdef") if rank == 0 else None, src=0)
assert share == ["abcdef"[rank]], share
part = torch.zeros(1)
dist.reduce_scatter(part, [torch.tensor([float(to)]) for to in range(world)])
assert part.item() == rank * world, part

# Messages between two ranks: what an absent one is sent goes nowhere, and it never keeps anybody waiting.
if rank == 0:
    dist.send(torch.tensor(42), dst=5)
    dist.send(torch.tensor(42), dst=3)
if rank == 5:
    heard = torch.tensor(0)
    dist.recv(heard, src=0)
    assert heard.item() == 42
    dist.recv(heard, src=4)

# Of a group of its own some members run, all of them, or one.
for members in ([1, 2, 3], [0, 1, 5], [4, 5]):
    group = dist.new_group(members)
    if rank in members:
        count = torch.ones(())
        dist.all_reduce(count, group=group)
        assert count.item() == len(members), (members, count)
dist.barrier()
dist.monitored_barrier()
dist.destroy_process_group()
print("done")
"""


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Gloo(unittest.TestCase):
    def test_the_ranks_that_run_hear_of_all(self):
        environment = dict(
            os.environ,
            PYTHONPATH=support.PYTHON,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
            WORLD_SIZE=str(WORLD),
            OOMPH_RANKS=",".join(map(str, RUNNING)),
        )
        running = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in RUNNING
        ]
        try:
            for rank, process in zip(RUNNING, running):
                said, complained = process.communicate(timeout=120)
                self.assertEqual((process.returncode, said), (0, "done\n"), "rank %d: %s" % (rank, complained))
        finally:
            for process in running:
                process.kill()
                process.communicate()


if __name__ == "__main__":
    unittest.main()

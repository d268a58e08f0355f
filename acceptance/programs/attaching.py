"""Trains on a card, pauses once so that it can be inspected, and trains on until it is asked to end.

Run as: attaching.py FOLDER. `ready` appears there with the process id and what PyTorch says of its memory during the
pause, `go` ends the pause, and `end` the training.
"""

import json
import os
import sys

import torch

folder = sys.argv[1]
present = lambda name: os.path.exists(os.path.join(folder, name))  # noqa: E731

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
steps, total, held = 0, 0, set()


def step():
    global steps, total
    batch = torch.randn(64, 512, device="cuda")
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
    total = (total * 31 + steps) % 1000000007
    del batch, loss
    held.add(torch.cuda.memory_allocated())


for _ in range(3):
    step()
held.clear()
modules = set(sys.modules)
free, capacity = torch.cuda.mem_get_info()
truth = {
    "pid": os.getpid(),
    "allocated": torch.cuda.memory_allocated(),
    "reserved": torch.cuda.memory_reserved(),
    "free": free,
    "total": capacity,
    "parameters": sum(one.numel() * one.element_size() for one in model.parameters()),
}
with open(os.path.join(folder, "ready.part"), "w") as file:
    file.write(json.dumps(truth))
os.rename(os.path.join(folder, "ready.part"), os.path.join(folder, "ready"))
while not present("go"):
    pass
while not present("end"):
    step()
again = 0
for number in range(1, steps + 1):
    again = (again * 31 + number) % 1000000007
ours = [name for name in sys.modules if "oomph_attached" in name]
print("right=%s" % (again == total and len(held) == 1 and not hasattr(sys, "_oomph_attached") and not ours))
print("hooks=%s" % len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks))

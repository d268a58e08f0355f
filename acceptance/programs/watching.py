"""A guarded program that has `oomph watch` look at it, and says what is true: watching.py {once,until,leak}.

`OOMPH` names the program that looks. It runs inside this run, where NVML shows the virtual card; in the mode `once` this
program also waits, so that another can look from outside.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import time

import torch

OOMPH = os.environ["OOMPH"]


def train(layers=4, width=512, batch=64, steps=10**9, kept=0):
    """Steps of a small model: gives the number of each once it is made, and keeps so many bytes after it."""
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    held = []
    for step in range(1, steps + 1):
        model(torch.randn(batch, width, device="cuda")).square().mean().backward()
        optimizer.step()
        # Here the hook has just looked.
        yield step
        optimizer.zero_grad()
        if kept:
            held.append(torch.empty(kept, dtype=torch.uint8, device="cuda"))


def look():
    done = subprocess.run([OOMPH, "watch", "--once", "--format", "json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def curves(*expected):
    """Whether the files for TensorBoard hold these sizes, which are curves of single precision in GiB."""
    subprocess.run([OOMPH, "watch", "--tensorboard", "curves", "--timeout", "2s"], stdout=subprocess.DEVNULL)
    written = b"".join(path.read_bytes() for path in pathlib.Path("curves").rglob("events.out.tfevents.*"))
    return [struct.pack("<f", size / 2**30) in written for size in expected]


def once():
    held = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    spare = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    del spare
    # Held, because what it trains goes with it.
    steps = train()
    for step in steps:
        # A record is written at most five times a second.
        time.sleep(0.3)
        if step == 4:
            break
    free, total = torch.cuda.mem_get_info()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    truth = {"free": free, "total": total, "allocated": allocated, "reserved": reserved, "pid": os.getpid()}
    print("truth=" + json.dumps(truth), flush=True)
    print("inside=" + json.dumps(look()), flush=True)
    print("curves=%s" % curves(allocated, reserved), flush=True)
    with open("ready", "w"):
        pass
    end = time.monotonic() + 60
    while not os.path.exists("go") and time.monotonic() < end:
        time.sleep(0.05)
    del held


def until():
    held = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    waits = subprocess.Popen([OOMPH, "watch", "--until", "free>10GiB"], stdout=subprocess.PIPE)
    time.sleep(3)
    print("waits=%s" % (waits.poll() is None), flush=True)
    del held
    torch.cuda.empty_cache()
    card = waits.communicate(timeout=30)[0].decode().strip()
    print("status=%d" % waits.returncode)
    print("card=%s" % card)
    late = subprocess.run([OOMPH, "watch", "--until", "free>100%", "--timeout", "1s"], stdout=subprocess.PIPE)
    print("late=%d" % late.returncode)


def leak():
    step, looks = 0, None
    try:
        for step in train(layers=8, width=1024, batch=256, kept=16 << 20):
            if looks is None:
                command = [OOMPH, "watch", "--format", "json", "--interval", "250ms", "--timeout", "5m"]
                looks = subprocess.Popen(command, stdout=open("looks", "wb"))
            time.sleep(0.08)
    finally:
        looks.kill()
        print("died=%d" % step, flush=True)


{"once": once, "until": until, "leak": leak}[sys.argv[1]]()

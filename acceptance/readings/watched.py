"""What `oomph watch` costs: `OOMPH=PATH oomph run --rehearse h100 --no-check --record off -- python watched.py TURNS`.

GPT-2 (12 layers, batch 4 of 512 tokens) trains in turns of five seconds, with `oomph watch --format json` beside it and without, in
changing order. Printed are the ratios of the CPU time of a step (the virtual card computes nothing), and watch's own CPU time.
"""

import os
import statistics
import subprocess
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SECONDS = 5


def main():
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    ids = torch.randint(0, 50257, (4, 512), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def turn():
        taken, end = [], time.monotonic() + SECONDS
        while time.monotonic() < end:
            begun = time.process_time()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            taken.append(time.process_time() - begun)
        return statistics.median(taken)

    def watched():
        nonlocal used, seen
        begun = time.monotonic()
        watch = subprocess.Popen([os.environ["OOMPH"], "watch", "--format", "json"], stdout=subprocess.DEVNULL)
        took = turn()
        watch.terminate()
        usage = os.wait4(watch.pid, 0)[2]
        used += usage.ru_utime + usage.ru_stime
        seen += time.monotonic() - begun
        return took

    used = seen = 0.0
    turn()
    ratios = []
    for number in range(int(sys.argv[1])):
        alone = turn() if number % 2 else None
        beside = watched()
        ratios.append(beside / (alone or turn()))
    print("ratios %s, median %.3f" % (["%.3f" % one for one in ratios], statistics.median(ratios)))
    print("watch used %.2f %% of a core" % (100 * used / seen))


if __name__ == "__main__":
    main()

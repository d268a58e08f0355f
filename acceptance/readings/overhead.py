"""What keeping writes away costs: `overhead.py OOMPH PYTHON PAIRS OUT.csv`.

Each pair is GPT-2 trained by `examples/finetune_gpt2.py` without any floor and with one, in changing order. A row has the
ratios of CPU seconds (user and system, with all children) and of wall seconds: median, least and most of the pairs.
"""

import csv
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/finetune_gpt2.py"
FLOORS = {"private view": "", "private view of a user": "user", "fence": "fence"}


def run(oomph, python, floor):
    """CPU and wall seconds of one dry run."""
    words = [oomph, "dry-run", "--gpu", "h100-nvl", "--no-probe", "--", python, str(EXAMPLE), "--batch-size", "8", "--blocks", "512"]
    before, begun = os.times(), time.monotonic()
    subprocess.run(words, check=True, capture_output=True, env=dict(os.environ, OOMPH_PRIVATE_VIEW=floor))
    wall, after = time.monotonic() - begun, os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, wall


def main():
    oomph, python, pairs, out = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    run(oomph, python, "off")
    rows = []
    for name, floor in FLOORS.items():
        cpu, wall, seconds = [], [], []
        for number in range(pairs):
            order = ["off", floor] if number % 2 else [floor, "off"]
            taken = {which: run(oomph, python, which) for which in order}
            cpu.append(taken[floor][0] / taken["off"][0])
            wall.append(taken[floor][1] / taken["off"][1])
            seconds.append(taken["off"][1])
        row = {"floor": name, "pairs": pairs, "seconds_without": "%.1f" % statistics.median(seconds)}
        for what, ratios in (("cpu", cpu), ("wall", wall)):
            row[what + "_median"] = "%.3f" % statistics.median(ratios)
            row[what + "_least"], row[what + "_most"] = "%.3f" % min(ratios), "%.3f" % max(ratios)
        rows.append(row)
        print(row, flush=True)
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes what the card and its twin held, a line for each program: `compare.py REAL VIRTUAL OUT.csv`.

REAL and VIRTUAL are folders of run.py's, or the same one. Bytes; "outside" is what NVML counts for the process at its end, less
what PyTorch has reserved then.
"""

import csv
import json
import os
import sys

from rows import ROWS

FIELDS = ["program", "words", "torch", "cudnn", "card_status", "twin_status", "card_allocated_peak", "twin_allocated_peak",
          "card_reserved_peak", "twin_reserved_peak", "card_outside", "twin_outside"]


def gauge(folder, name, kind):
    """The status and the fullest process of a run; nothing where there is none."""
    try:
        with open(os.path.join(folder, "%s.%s.json" % (name, kind))) as file:
            run = json.load(file)
    except FileNotFoundError:
        return None, {}
    return run["status"], max(run["gauges"], key=lambda one: one.get("reserved_peak_bytes", 0), default={})


def main():
    real, virtual, out = sys.argv[1:]
    lines = []
    for row in ROWS:
        (status, card), (twin_status, twin) = gauge(real, row["name"], "real"), gauge(virtual, row["name"], "virtual")
        if "reserved_peak_bytes" not in card or "reserved_peak_bytes" not in twin:
            continue

        def outside(one):
            return one["process_bytes"] - one["reserved_bytes"] if one.get("process_bytes") else ""

        figures = [row["name"], " ".join(row["words"]), card["torch"], card["cudnn"], status, twin_status]
        for key in ("allocated_peak_bytes", "reserved_peak_bytes"):
            figures += [card[key], twin[key]]
        lines.append(dict(zip(FIELDS, [*figures, outside(card), outside(twin)], strict=True)))
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    for what, top in (("allocated", 0.001), ("reserved", 0.01)):
        ratios = sorted(abs(line["twin_%s_peak" % what] / line["card_%s_peak" % what] - 1) for line in lines)
        equal = sum(1 for ratio in ratios if ratio == 0)
        print("%s: %d programs, %d equal, %d within %.1f %%, median %.3f %%, largest %.2f %%" % (
            what, len(ratios), equal, sum(1 for ratio in ratios if ratio <= top), 100 * top, 100 * ratios[len(ratios) // 2],
            100 * ratios[-1]))
    apart = sorted(abs(line["twin_outside"] - line["card_outside"]) / 2**20 for line in lines if line["card_outside"] != "")
    print("outside: median %.0f MiB, largest %.0f MiB of %d" % (apart[len(apart) // 2], apart[-1], len(apart)))


main()

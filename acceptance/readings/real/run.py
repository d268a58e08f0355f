#!/usr/bin/env python3
"""Runs each program on this machine's card and on its virtual twin: `run.py OOMPH CARD OUT [--seconds N] [NAME ...]`.

`--virtual 0` leaves out the twin and `--real 0` the card, so that the two can be read on different machines. OUT is a folder
that gets NAME.real.* and NAME.virtual.*: what was printed, what the gauge read, and the report. Real runs share the card as far
as their sizes allow; virtual ones need no card and use the processors meanwhile.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from rows import ROWS

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.abspath(os.path.join(HERE, "..", "..", "programs"))


class Room:
    """The card's memory in GiB, handed out to programs that run beside each other."""

    def __init__(self, gib):
        self.free, self.changed = gib, threading.Condition()

    def take(self, gib):
        with self.changed:
            self.changed.wait_for(lambda: self.free >= gib)
            self.free -= gib

    def give(self, gib):
        with self.changed:
            self.free += gib
            self.changed.notify_all()


def run(row, kind, command, out, limit):
    base = os.path.join(out, "%s.%s" % (row["name"], kind))
    program = os.path.join(PROGRAMS, row["words"][0])
    words = [*command, sys.executable, program, *row["words"][1:]]
    env = dict(os.environ, GAUGE=base + ".gauge", PYTHONPATH=os.path.join(HERE, "gauge") + ":" + os.environ.get("PYTHONPATH", ""),
               HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", **row.get("env", {}))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, open(base + ".out", "w") as stdout, open(base + ".err", "w") as stderr:
        try:
            status = subprocess.run(words, cwd=folder, env=env, stdout=stdout, stderr=stderr, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            status = "timeout"
    seconds = time.monotonic() - begun
    gauges = [json.load(open(name)) for name in glob.glob(base + ".gauge.*")]
    with open(base + ".json", "w") as file:
        json.dump({"name": row["name"], "status": status, "seconds": seconds, "gauges": gauges}, file)
    print("%-8s %-28s %s %.1f s" % (kind, row["name"], status, seconds), flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("oomph")
    parser.add_argument("card")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--gib", type=float, default=76)
    parser.add_argument("--real", type=int, default=4)
    parser.add_argument("--virtual", type=int, default=6)
    parser.add_argument("--also", help="a JSON list of [name, words, GiB]: more rows, such as programs with a fix applied")
    parser.add_argument("names", nargs="*")
    told = parser.parse_intermixed_args()
    out = os.path.abspath(told.out)
    os.makedirs(out, exist_ok=True)
    end = time.monotonic() + told.seconds
    every = ROWS
    if told.also:
        with open(told.also) as file:
            every = ROWS + [dict(name=name, words=words.split(), gib=gib) for name, words, gib in json.load(file)]
    rows = [row for row in every if not told.names or row["name"] in told.names]
    room = Room(told.gib)

    def limit():
        return min(120, end - time.monotonic())

    def real(row):
        gib = told.gib if row["gib"] is None else row["gib"]
        room.take(gib)
        try:
            if limit() > 5:
                run(row, "real", [], out, limit())
        finally:
            room.give(gib)

    def virtual(row):
        report = os.path.join(out, row["name"] + ".virtual.report")
        if limit() > 5:
            run(row, "virtual", [told.oomph, "dry-run", "--quiet", "--gpu", told.card, "--until-exit", "--allow-writes", "--network", "read",
                               "--report", report, "--"], out,
                limit())

    # Large programs begin together with small ones, so that the card is never empty; those that die come last, alone.
    shared = [row for row in rows if row["gib"] is not None]
    with (concurrent.futures.ThreadPoolExecutor(told.real or 1) as cards,
          concurrent.futures.ThreadPoolExecutor(told.virtual or 1) as twins):
        if told.virtual:
            waits = [twins.submit(virtual, row) for row in rows]
        if told.real:
            for wait in [cards.submit(real, row) for row in shared]:
                wait.result()
            for row in rows:
                if row["gib"] is None:
                    real(row)
        for wait in waits if told.virtual else []:
            wait.result()


if __name__ == "__main__":
    main()

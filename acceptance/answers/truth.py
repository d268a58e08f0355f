#!/usr/bin/env python3
"""Finds the true answers for `programs.toml` by running whole programs; every run becomes a row of `runs.csv`.

    truth.py OOMPH PYTHON [NAME...] [--named | --peaks] [--again]

OOMPH is the binary and PYTHON an interpreter whose environment has what the programs import. Each run is a dry run with
`--until-exit --no-probe --no-owners`: the program runs to its end, and nothing is shortened, searched or extrapolated.

A program is first run on the card that its row names: the verdict, the step and the line of death there are the truth. (The
phase is in `programs.toml`, from whoever wrote the program.) Then it is run on a card without a limit, whose peak is the
first capacity that holds it, and bisection over `--vram` goes on until the largest capacity on which it dies and the smallest on
which it ends are at most 1 % apart.

A run that `runs.csv` has is not made again, unless with `--again`, which forgets the program's rows. `--named` stops after the run
on the named card, `--peaks` after those on the named card and on one without a limit.
"""

import argparse
import csv
import datetime
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time

import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "runs.csv")
# The line of death is the only field with commas in it, so it is the last one.
FIELDS = ["name", "vram_bytes", "verdict", "steps", "step", "phase", "process_bytes", "reserved_bytes", "allocated_bytes",
          "seconds", "date", "oomph", "versions", "line"]
# Used as a card without a limit: the largest `--vram` that `--gpu` accepts.
NO_LIMIT = 900 << 30
APART = 1.01


class Bench:
    """Runs one program on cards of any size, and knows the runs that were made before."""

    def __init__(self, args, program):
        self.oomph, self.python = os.path.abspath(args.oomph), os.path.abspath(args.python)
        self.models, self.program = args.models and os.path.abspath(args.models), program
        self.known = {int(row["vram_bytes"]): row for row in table() if row["name"] == program["name"]}

    def run(self, vram):
        """The row of one whole run; `vram` is a number of bytes."""
        if vram not in self.known:
            self.known[vram] = self.made(vram)
            append(self.known[vram])
        return self.known[vram]

    def holds(self, vram):
        """Whether the program runs to its end on a card of this size, without an out-of-memory error, caught ones included."""
        return self.run(vram)["verdict"] == "fits"

    def made(self, vram):
        program = self.program
        words = [self.oomph, "dry-run", "--gpu", program["gpu"], "--vram", f"{vram}B", "--until-exit", "--no-probe",
                 "--no-owners", "--format", "json", *program.get("options", [])]
        script, *arguments = program["program"]
        words += ["--", self.python, os.path.join(HERE, script), *arguments]
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            for name in ("models", "data") if self.models else ():
                os.symlink(os.path.join(self.models, name), os.path.join(folder, name))
            environment = dict(os.environ, HF_HUB_OFFLINE="1", **program.get("env", {}))
            done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
        seconds = time.monotonic() - begun
        try:
            report = json.loads(done.stdout)
        except ValueError:
            report = {"verdict": "no report"}
        if report["verdict"] not in ("fits", "oom", "recovered"):
            sys.exit(f"{report['verdict']}\n{done.stderr[-3000:]}")
        device = report["devices"][0]
        caught = device.get("caught_ooms") or []
        error = device["oom"] or (caught[-1] if caught else {})
        verdict = "recovered" if report["verdict"] == "fits" and caught else report["verdict"]
        version = subprocess.run([self.oomph, "--version"], stdout=subprocess.PIPE, text=True).stdout.split()[-1]
        row = {
            "name": program["name"], "vram_bytes": vram, "verdict": verdict, "steps": report["steps"],
            "step": error.get("step") or "", "phase": error.get("phase") or "",
            "line": ((error.get("site") or {}).get("text") or "").strip(),
            **{f"{name}_bytes": device["peak"][f"{name}_bytes"] for name in ("process", "reserved", "allocated")},
            "seconds": f"{seconds:.1f}", "date": datetime.date.today().isoformat(), "oomph": version,
            "versions": " ".join(f"{name} {text}" for name, text in sorted(report["frameworks"].items())),
        }
        mib = " ".join(f"{name} {int(row[f'{name}_bytes']) / 2**20:.0f}" for name in ("process", "reserved", "allocated"))
        print(f"    {vram / 2**30:9.3f} GiB {verdict:9} {mib} MiB, steps {row['steps']} {row['phase']} step {row['step']} "
              f"{row['line']!r} {seconds:.1f} s", flush=True)
        return row


def named_card(program):
    """The bytes of the card of a row: what `vram` says, or what the catalogue of cards says."""
    if "vram" in program:
        number, unit = program["vram"][:-3], program["vram"][-3:]
        return int(float(number) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit])
    with open(os.path.join(HERE, "../../crates/oomph-gpu/data/gpus.toml"), "rb") as file:
        text = json.dumps(tomllib.load(file))
    cards = [card for group in json.loads(text).values() if isinstance(group, list) for card in group]
    return next(card for card in cards if card.get("id") == program["gpu"])["capacity_bytes"]


def bisect(bench):
    """Runs until the largest capacity that does not hold the program and the smallest that does are close to each other."""
    peak = bench.run(NO_LIMIT)
    process, reserved, allocated = (int(peak[f"{name}_bytes"]) for name in ("process", "reserved", "allocated"))
    high = process + (2 << 20)
    # What is allocated is on the card, and so is what lies outside of the framework's allocator. Workspaces are allocated too,
    # and there PyTorch goes on with less; so this is where to begin, and it is run before it counts.
    low = int((allocated + process - reserved) * 0.998)
    for vram in bench.known:
        if bench.holds(vram):
            high = min(high, vram)
    low = max([low, *(vram for vram in bench.known if low < vram < high)])
    middle = int(low * 1.009)
    while high / low > APART:
        if bench.holds(middle):
            high = middle
        else:
            low = middle
        middle = int((low * high) ** 0.5)
    while not bench.holds(high):
        low, high = high, int(high * 1.009)
    while bench.holds(low):
        low, high = int(low * 0.992), low


def main():
    parser = argparse.ArgumentParser(description=__doc__.replace("%", "%%"), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oomph")
    parser.add_argument("python")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--peaks", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--models", help="the folder where models.py was run")
    args = parser.parse_intermixed_args()
    with open(os.path.join(HERE, "programs.toml"), "rb") as file:
        programs = tomllib.load(file)["program"]
    for program in programs:
        if args.names and program["name"] not in args.names:
            continue
        if args.again:
            forget(program["name"])
        print(f"{program['name']}:", flush=True)
        bench = Bench(args, program)
        try:
            if "vram" in program or not args.peaks:
                bench.run(named_card(program))
            if not args.named:
                bench.run(NO_LIMIT)
            if not args.named and not args.peaks:
                bisect(bench)
        except SystemExit as error:
            print(f"    {error}", flush=True)


def table():
    if not os.path.exists(TABLE):
        return []
    with open(TABLE, newline="") as file:
        return list(csv.DictReader(file))


def append(row):
    change(lambda rows: rows + [row] if row not in rows else rows)


def forget(name):
    change(lambda rows: [row for row in rows if row["name"] != name])


def change(how):
    """Rewrites the table, one process at a time; a program's rows stay together, by size."""
    with open(os.path.join(HERE, "programs.toml")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = how(table())
        rows.sort(key=lambda row: (row["name"], int(row["vram_bytes"])))
        with open(TABLE, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

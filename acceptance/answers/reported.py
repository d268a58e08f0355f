#!/usr/bin/env python3
"""Asks again about programs on which an earlier oomph (commit cd306cd) was wrong, and keeps what is answered in `reported.csv`.

    reported.py OOMPH PYTHON FOLDER [NAME...]

FOLDER holds the reported programs, and the `models` and `data` that their own models.py makes. A row is a question, the answer that
is true (found by running the program whole, or by hand), and whether today's answer says so. A row is replaced when it is
asked again.
"""

import argparse
import csv
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "../readings/reported.csv")
FIELDS = ["date", "oomph", "name", "asked", "true", "answered", "holds", "seconds"]
GIB = 1 << 30
RANDOM = "--random-weights"


def oom(phase=None, step=None, most_gib=None, says=None):
    """The program dies: in this phase and step, needing at most so much; the answer has these words in it."""

    def check(report, text):
        device = report["devices"][0]
        error = device["oom"] or {}
        need = error.get("would_need_bytes")
        answered = f"{report['verdict']}, {error.get('phase')}, step {error.get('step')}, needs " + (
            f"{need / GIB:.2f} GiB" if need else "unknown")
        holds = report["verdict"] == "oom"
        holds &= phase in (None, error.get("phase")) and step in (None, error.get("step"))
        holds &= most_gib is None or bool(need) and need <= most_gib * GIB
        holds &= says is None or says in text
        return holds, answered

    return check


def verdict(wanted):
    return lambda report, text: (report["verdict"] == wanted, report["verdict"])


def fixed(says=None, never=None, most_gib=None):
    """A fix was found; its text has these words in it, and not those; its peak is at most this."""

    def check(report, text):
        fixes = report.get("fixes") or []
        peaks = [fix["peak_bytes"] for fix in fixes if fix.get("peak_bytes")]
        answered = f"{report['verdict']}, {len(fixes)} fixes" + (f", {min(peaks) / GIB:.2f} GiB" if peaks else "")
        holds = says is None or says in text
        holds &= never is None or never not in text
        holds &= most_gib is None or bool(peaks) and min(peaks) <= most_gib * GIB
        return holds, answered

    return check


# name, the command and its options, the program, what is true, and how that is seen in the report.
ROWS = [
    ("retain", "dry-run --gpu rtx-3060 --vram 2GiB", "retain.py", "dies in the validation after the epoch, step 17",
     oom(phase="eval", step=17)),
    ("retain-fix", "fix --gpu rtx-3060 --vram 2GiB --until-exit", "retain.py", "torch.no_grad()", fixed(says="no_grad")),
    ("leak-hook", "dry-run --gpu rtx-3060 --vram 4GiB", "leak_loss.py --leak hook --workers 0", "dies in step 79, feats",
     oom(step=79, says="feats")),
    ("leak-hook-fix", "fix --gpu rtx-3060 --vram 4GiB", "leak_loss.py --leak hook --workers 0", "feats.append(o)",
     fixed(says="feats.append")),
    ("leak-retain-fix", "fix --gpu rtx-3060 --vram 6GiB", "leak_loss.py --leak retain --workers 0", "drop retain_graph=True",
     fixed(says="retain_graph")),
    ("unet-fix", "fix --gpu rtx-3060", "unet_seg.py", "AMP by the program's own --amp, 6.76 GiB", fixed(says="--amp", most_gib=6.9)),
    ("gan-fix", "fix --gpu rtx-3060 --vram 8GiB", "gan.py", "no AdamW for two Adams with betas",
     fixed(never="torch.optim.AdamW(model.parameters()")),
    ("retry", "dry-run --gpu rtx-3060", "retry.py", "recovers from an out-of-memory error", verdict("recovered")),
    ("sft-4096-pack", f"dry-run --gpu rtx-4090 {RANDOM}", "sft_small.py 4096 pack", "fits", verdict("fits")),
    ("sft-2048-nopack", f"dry-run --gpu rtx-4090 {RANDOM}", "sft_small.py 2048 nopack", "fits", verdict("fits")),
    ("sft-1024-pack", f"dry-run --gpu rtx-4090 {RANDOM}", "sft_small.py 1024 pack", "fits", verdict("fits")),
    ("eval-trainer", f"dry-run --gpu rtx-4090 {RANDOM}", "eval_trainer.py", "dies in the first evaluation, five steps in",
     oom(phase="eval", step=6)),
    ("eval-trainer-whole", f"dry-run --gpu rtx-4090 --until-exit {RANDOM}", "eval_trainer.py",
     "needs no more than a few times its logits (90 GiB)", oom(phase="eval", step=6, most_gib=300)),
    ("trainer-full-fix", f"fix --gpu rtx-4090 --max-time 5m {RANDOM}", "trainer_full.py", "23.62 GiB is enough", fixed(most_gib=23.7)),
    ("dpo", f"dry-run --gpu a100-80gb {RANDOM}", "dpo.py", "runs on h100-nvl (93 GiB)", oom(most_gib=93.2)),
    ("sdxl-four-images", f"dry-run --gpu rtx-3060 {RANDOM}", "sdxl.py", "fits on an rtx-3090", oom(most_gib=23.7)),
]


def ask(args, name, command, program, check):
    script, *rest = program.split()
    verb, *options = command.split()
    path = os.path.join(HERE, "../programs/fixes" if script == "sdxl.py" else args.folder, script)
    words = [args.oomph, verb, *options, "--format", "json", "--", args.python, os.path.abspath(path), *rest]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for part in ("models", "data"):
            os.symlink(os.path.join(os.path.abspath(args.folder), part), os.path.join(folder, part))
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder,
                              env=dict(os.environ, HF_HUB_OFFLINE="1"))
    seconds = time.monotonic() - begun
    try:
        holds, answered = check(json.loads(done.stdout), done.stdout)
    except (ValueError, KeyError, IndexError):
        holds, answered = False, re.sub(r"\s+", " ", done.stderr[-200:])
    return holds, answered, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("oomph", "python", "folder"):
        parser.add_argument(name)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.oomph, args.python = os.path.abspath(args.oomph), os.path.abspath(args.python)
    unknown = set(args.names) - {name for name, *_ in ROWS}
    if unknown:
        sys.exit(f"no such row: {', '.join(sorted(unknown))}")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, stdout=subprocess.PIPE, text=True).stdout.strip()
    for name, command, program, true, check in ROWS:
        if args.names and name not in args.names:
            continue
        holds, answered, seconds = ask(args, name, command, program, check)
        row = {"date": datetime.date.today().isoformat(), "oomph": commit, "name": name, "asked": f"{command} -- {program}",
               "true": true, "answered": answered, "holds": "yes" if holds else "no", "seconds": f"{seconds:.1f}"}
        print(row, flush=True)
        keep(row)


def keep(row):
    rows = {}
    if os.path.exists(TABLE):
        with open(TABLE, newline="") as file:
            rows = {known["name"]: known for known in csv.DictReader(file)}
    rows[row["name"]] = row
    with open(TABLE, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name, *_ in ROWS if name in rows)


if __name__ == "__main__":
    main()

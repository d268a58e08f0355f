#!/usr/bin/env python3
"""Whether what `oomph explain` says of recordings is true: small programs that die, leak, recover or fit.

    explanations.py OOMPH PYTHON OUT.csv [CASE ...]

PYTHON is an interpreter of an environment with acceptance/requirements/torch-2.15.txt. Each program of
acceptance/programs/endings.py is recorded by `oomph dry-run --snapshot` on a card of 2 GiB and its recording explained.
The CSV has a line for the recording (is the error that is said the error that the dry run saw?) and one for each claim
that a setting or a card gets past the failure, or holds a program that fitted: a dry run with that setting in
PYTORCH_CUDA_ALLOC_CONF, or on a card of that size, has to get past the same allocation (or to the end). `true` is
yes or no. Cases that are named replace those of an OUT.csv that is there.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from table import refill

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "..", "programs", "endings.py")
CARD = ["--vram", "2GiB"]
FIELDS = ["case", "claim", "on", "says", "run", "true"]


def cases():
    text = open(PROGRAM).read()
    return [name.replace("_", "-") for name in re.findall(r"^def ((?:dies|leaks|recovers|fits)_\w+)", text, re.M)]


def dry_run(oomph, python, case, card, settings="", snapshot=None):
    command = [oomph, "dry-run", *card, "--until-exit", "--no-probe", "--format", "json", "--quiet"]
    if snapshot:
        command += ["--snapshot", snapshot]
    environment = dict(os.environ)
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if settings:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = settings
    done = subprocess.run([*command, "--", python, PROGRAM, case], capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def explain(oomph, snapshot, *options):
    done = subprocess.run([oomph, "explain", "--format", "json", "--quiet", *options, snapshot], capture_output=True,
                          text=True)
    return json.loads(done.stdout)["devices"][0], done.returncode


def events(device):
    """How many allocations a recording made before its failure, or in all."""
    return device["churn"]["allocations"]


def check(oomph, python, case, folder):
    first = os.path.join(folder, "first.pickle")
    ran = dry_run(oomph, python, case, CARD, snapshot=first)
    died = ran["verdict"] == "oom"
    device, status = explain(oomph, first, *CARD)
    outcome = device["verdict"]["outcome"]
    line = {"case": case, "claim": "recording", "on": CARD[-1], "says": f"{outcome}, exit {status}", "run": ran["verdict"]}
    yield dict(line, true="yes" if (outcome == "oom") == died and (status == 1) == died else "no")

    def confirmed(row_says, card, settings):
        second = os.path.join(folder, "second.pickle")
        again = dry_run(oomph, python, case, card, settings, second)
        reached = "it ends"
        true = again["verdict"] != "oom"
        if died and not true and row_says.startswith("gets past"):
            other, _ = explain(oomph, second, "--no-what-if", *card)
            before, after = events(device), events(other)
            true = after > before
            reached = f"dies after {after} allocations, before after {before}"
        return {"says": row_says, "run": reached if true or died else again["verdict"], "true": "yes" if true else "no"}

    # What "cannot be told" is no claim.
    claims = [row for row in device["what_if"] if not row["says"].startswith("cannot be told")]
    for row in claims:
        if row["card"] == device["what_if"][0]["card"] and row["survives"] and not row["as_recorded"]:
            yield {"case": case, "claim": row["settings"] or "defaults", "on": CARD[-1],
                   **confirmed(row["says"], CARD, row["settings"])}
    own = device["what_if"][0]["card"] if device["what_if"] else ""
    others = [row for row in claims if row["card"] != own and row["as_recorded"] and row["survives"]]
    for row in others[:1]:
        yield {"case": case, "claim": "card", "on": row["card"], **confirmed(row["says"], ["--gpu", row["card"]], "")}
    smallest = device["smallest_card"]
    if smallest is not None:
        vram = ["--vram", f"{smallest['capacity_bytes']}B"]
        says = "gets past on a card of" if died else "fits on a card of"
        yield {"case": case, "claim": "smallest card", "on": f"{smallest['capacity_bytes'] / 2**20:.0f} MiB",
               **confirmed(says, vram, "")}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    oomph, python, out, *named = sys.argv[1:]

    def measure(case):
        with tempfile.TemporaryDirectory() as folder:
            yield from check(oomph, python, case, folder)

    rows = refill(out, FIELDS, "case", cases(), named, measure)
    wrong = [row for row in rows if row["true"] != "yes"]
    print(f"{len({row['case'] for row in rows})} programs, {len(rows)} claims, {len(wrong)} untrue")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Sizes that follow from values: whether a dry run finds those of the CPU, or says that it took the most there can be.

    values.py OOMPH PYTHON [--out FILE]

Each case of `acceptance/programs/values.py` runs on the CPU, which computes everything, and in a dry run. With
`OOMPH_TEST_POISON` set, blocks that nothing has written hold a pattern, and a value that is taken from one is a fault.
What is wrong is in the last column.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys

from table import refill

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "..", "programs", "values.py")
FIELDS = ["date", "case", "on_the_cpu", "in_the_dry_run", "said", "wrong"]


def cases():
    with open(PROGRAM) as file:
        return re.findall(r"@case\ndef (\w+)", file.read())


def printed(text, case):
    lines = [line for line in text.splitlines() if line.startswith(case + " ")]
    return lines[-1][len(case) + 1 :] if lines else ""


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, env={**os.environ, **more})


def read(oomph, python, together):
    """Cases in one process, so that what one leaves lies where the next one works."""
    # What is compiled computes the same as what is not.
    whole = run([python, PROGRAM, "cpu", *together], TORCH_COMPILE_DISABLE="1")
    dry = run([oomph, "dry-run", "--gpu", "rtx-3060", "--format", "json", "--no-probe", "--", python, PROGRAM, "cuda", *together])
    report = json.loads(dry.stdout)
    device = report["devices"][0]
    faults = [one for one in report["warnings"] if "a test's pattern" in one]
    for case in together:
        # The program's own output goes to where errors go.
        truth, found = printed(whole.stdout, case), printed(dry.stderr, case)
        numbers = [[float(number) for number in re.findall(r"[\d.]+", text)] for text in (truth, found)]
        wrong = [] if report["verdict"] == "fits" else ["verdict %s" % report["verdict"]]
        if case.endswith("_most"):
            if not device["peak_is_maximum"]:
                wrong.append("the most is taken and it is not said")
            if len(numbers[0]) != len(numbers[1]) or any(more < less for less, more in zip(*numbers)):
                wrong.append("less than on the CPU")
        elif truth != found or not found:
            wrong.append("another size")
        elif device["peak_is_maximum"]:
            wrong.append("the most is said of sizes that can be known")
        yield {"date": datetime.date.today().isoformat(), "case": case, "on_the_cpu": truth, "in_the_dry_run": found,
               "said": "at most" if device["peak_is_maximum"] else "exact", "wrong": "; ".join(wrong + faults)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomph")
    parser.add_argument("python")
    parser.add_argument("--out", default=os.path.join(HERE, "values.csv"))
    args = parser.parse_args()
    known = [case for case in cases() if not case.endswith("_most")]
    runs = {"known": known, **{case: [case] for case in cases() if case.endswith("_most")}}
    rows = refill(args.out, FIELDS, "case", runs, [], lambda name: read(args.oomph, args.python, runs[name]))
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

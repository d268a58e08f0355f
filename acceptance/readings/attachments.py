"""Attaches to programs of several interpreters many times, and asks the programs whether they computed what they would.

    python attachments.py OOMPH N PYTHON... > attachments.csv

PYTHON may be several words, such as "chroot FOLDER /usr/bin/python3.14"; the programs are those of
`crates/oomph-attach/tests/programs.py`, whose threads check their own sums, digests and waits.
"""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/oomph-attach/tests/programs.py")
KINDS = {"alone": 1, "reals": 1, "threads": 5, "joins": 5}


def attached(oomph, pid):
    """One attachment: the answer and the seconds that it took."""
    began = time.monotonic()
    done = subprocess.run([oomph, "attach", "--format", "json", str(pid)], capture_output=True, text=True)
    seconds = time.monotonic() - began
    return (json.loads(done.stdout)["processes"][0] if done.stdout else {"reason": done.stderr}), seconds


def reading(oomph, times, python, kind):
    """A program that is attached to so many times."""
    with tempfile.TemporaryDirectory() as folder:
        end = os.path.join(folder, "end")
        program = subprocess.Popen(python.split() + ["-", kind, end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with open(PROGRAMS) as file:
            program.stdin.write(file.read())
        program.stdin.close()
        assert program.stdout.readline() == "ready\n"
        seconds, ways, versions, failures = [], set(), set(), []
        for _ in range(times):
            answer, took = attached(oomph, program.pid)
            if answer.get("failed") or answer.get("reason") != "it has not imported PyTorch":
                failures.append(answer.get("reason"))
                continue
            seconds.append(took)
            ways.add(answer["way"])
            versions.add(answer["python"])
        inside = "/proc/%d/root%s" % (program.pid, end)
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        with open(inside, "w"):
            pass
        verdict = program.stdout.readline().split(" ")[0].strip()
        program.wait()
    for failure in failures[:3]:
        print(python, kind, failure, file=sys.stderr)
    return {
        "python": ",".join(sorted(versions)), "program": kind, "threads": KINDS[kind], "attachments": times,
        "answered": len(seconds), "way": ",".join(sorted(ways)), "program_computed": verdict, "program_status": program.returncode,
        "median_ms": round(1e3 * statistics.median(seconds)) if seconds else "", "most_ms": round(1e3 * max(seconds)) if seconds else "",
    }


def main():
    oomph, times, pythons = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    writer = None
    for python in pythons:
        for kind in KINDS:
            row = reading(oomph, times, python, kind)
            if writer is None:
                writer = csv.DictWriter(sys.stdout, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()

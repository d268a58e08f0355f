#!/usr/bin/env python3
"""Makes `loading.csv`: each way of loading data that `programs/loading.py` has, with workers, under `oomph dry-run`.

    loading.py OOMPH [KIND/START ...] [--reports DIR]

Each program goes through small batches and through large ones. The truth is the peak of the same batches without workers, run
to its end (`plain --workers 0` with `--until-exit`): a card sees nothing of how a batch came. An error of the program's own
has to come through, with its words. A program that is not done after two minutes waits, on a machine that is not busy.
`--reports` keeps each report, and what is kept already is not run again.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys

from table import refill

FIELDS = ["date", "torch", "program", "workers", "start", "verdict", "exit_status", "allocated_bytes", "reserved_bytes",
          "truth", "truth_found_by", "same"]
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "..", "programs", "loading.py")
TABLE = os.path.join(HERE, "loading.csv")
PATIENCE = 120
GIVEN_UP = 124
"""The status of a run that was ended because it waited."""

ERRORS = {"worker_raises": "sample 40 has no label", "collate_raises": "boxes of different numbers",
          "worker_dies_raises": "exited unexpectedly", "pool_raises": "sample 40 has no label"}
FORKED = [
    "plain", "tensors", "own", "dicts", "lists", "nested", "objects", "named", "strings", "arrays", "partial", "pinned",
    "pinned_objects", "persistent", "prefetched", "unordered", "initialised", "file_system", "modules", "iterable",
    "iterable_batches", "batches_by_sampler", "own_batches", "own_order", "weighted", "random_batches", "remade", "zipped",
    "cycled", "by_next", "in_a_thread", "pool", "torch_pool", "executor", "torch_executor", "process", "threads",
    "torchdata_nodes", "stateful", "webdataset", "hugging_face", "hugging_face_stream", *ERRORS,
]
SPAWNED = ["own", "pinned", "process", "pool", "torch_pool", "executor", "torchdata_nodes", "hugging_face", "worker_raises"]
# Python 3.14 starts processes so where a program says nothing. `threads` starts none.
FROM_A_SERVER = [kind for kind in FORKED if kind != "threads"]


def everything():
    for start, kinds in (("fork", FORKED), ("spawn", SPAWNED), ("forkserver", FROM_A_SERVER)):
        for kind in kinds:
            yield "%s/%s" % (kind, start)


class Runs:
    def __init__(self, oomph, reports):
        self.oomph = oomph
        self.reports = reports

    def run(self, kind, start, workers, *more):
        """The status, the report and what was written to stderr."""
        kept = os.path.join(self.reports, "%s-%s-%d" % (kind, start, workers)) if self.reports else None
        if kept is None or not os.path.exists(kept + ".json"):
            command = [self.oomph, "dry-run", "--gpu", "rtx-3060", "--no-probe", *more, "--format", "json", "--",
                       sys.executable, PROGRAM, kind, "--start", start, "--workers", str(workers)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
                status, report, said = done.returncode, json.loads(done.stdout), done.stderr
            except subprocess.TimeoutExpired:
                status, report, said = GIVEN_UP, {}, ""
            if kept is None:
                return status, report, said
            with open(kept + ".json", "w") as file:
                json.dump({"status": status, "report": report, "said": said}, file)
        with open(kept + ".json") as file:
            found = json.load(file)
        return found["status"], found["report"], found["said"]

    def truth(self):
        _, report, _ = self.run("plain", "fork", 0, "--until-exit")
        return report["devices"][0]["peak"]["allocated_bytes"]

    def measure(self, name):
        kind, start = name.split("/")
        status, report, said = self.run(kind, start, 2)
        peak = report["devices"][0]["peak"] if report else {}
        fault = report.get("fault") or {}
        if kind in ERRORS:
            truth, by = "its own error", "the words of its traceback"
            same = status == 3 and not fault and ERRORS[kind] in said
        else:
            truth, by = self.truth(), "no workers, run to its end"
            same = status == 0 and peak.get("allocated_bytes") == truth
        yield {
            "date": datetime.date.today().isoformat(), "torch": report.get("frameworks", {}).get("torch", ""),
            "program": name, "workers": 2, "start": start, "verdict": report.get("verdict", "waits"), "exit_status": status,
            "allocated_bytes": peak.get("allocated_bytes") or "", "reserved_bytes": peak.get("reserved_bytes") or "",
            "truth": truth, "truth_found_by": by, "same": "yes" if same else "no",
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("oomph")
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--reports")
    options = parser.parse_args()
    if options.reports:
        os.makedirs(options.reports, exist_ok=True)
    lines = refill(TABLE, FIELDS, "program", list(everything()), options.rows, Runs(options.oomph, options.reports).measure)
    wrong = [line["program"] for line in lines if line["same"] != "yes"]
    print("%d of %d are as without workers%s" % (len(lines) - len(wrong), len(lines), "; not " + ", ".join(wrong) if wrong else ""))


if __name__ == "__main__":
    main()

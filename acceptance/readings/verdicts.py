"""Whether each case of `acceptance/programs/verdicts.py` has its verdict: `verdicts.py OOMPH PYTHON OUT.csv [CASE ...]`.

`truth` is what the program does on a card of 6 GiB by its own text; a need is the arithmetic of what it keeps. A log is what the
program printed in its dry run, given to `oomph explain`.
"""

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "programs" / "verdicts.py"
GIB = 2**30
CARD = ["--gpu", "rtx-3060", "--vram", "6GiB"]
TRUTH = {
    **dict.fromkeys([
        "swallowed_by_a_handler", "swallowed_by_a_pool_of_threads", "swallowed_by_gather", "ends_a_thread", "ends_a_process",
        "ends_a_worker_of_a_pool", "ends_a_worker_of_an_executor", "ends_a_worker_of_a_loader", "ends_a_child",
        "waits_after_a_thread_died", "a_part_of_the_card", "four_gib_of_any_card", "trains_in_a_part",
    ], "oom"),
    **dict.fromkeys(["handled_and_another_error", "halved_and_another_error"], "failed"),
    **dict.fromkeys(["halved", "left_out"], "recovered"),
    **dict.fromkeys([
        "waits_for_a_queue", "waits_for_an_event", "waits_for_a_condition", "waits_for_a_thread", "waits_for_a_pipe",
        "waits_in_a_poll", "waits_for_a_child", "waits_for_a_process", "waits_for_input",
    ], "unsure"),
    **dict.fromkeys(["computes_on_the_host", "has_a_child_that_computes", "sleeps_for_a_while", "half_of_the_card"], "fits"),
}  # fmt: skip
NEEDS = {"a_part_of_the_card": 24 * GIB, "half_of_the_card": 4 * GIB}
LOGS = {"halved", "left_out"}
SILENT = subprocess.Popen(["sleep", "100000"], stdout=subprocess.PIPE).stdout
"""An input that stays open and never has a line."""


def answer(oomph, python, case):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [oomph, "--quiet", "dry-run", *CARD, "--report", str(report), "--", python, str(PROGRAM), case]
        begun = time.monotonic()
        ran = subprocess.run(words, stdin=SILENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
        found = json.loads(report.read_text())
    device = found["devices"][0]
    oom = device["oom"] or (device["caught_ooms"] or [None])[-1]
    place = (oom or {}).get("site") or (found.get("waits") or {}).get("site") or {}
    small = device["smallest_capacity"]
    log = ""
    if case in LOGS:
        printed = ran.stdout[: ran.stdout.rfind("\nrecovered:")]
        told = subprocess.run([oomph, "explain", "-"], input=printed, stdout=subprocess.PIPE, text=True)
        log = "%s %d" % (told.stdout.strip().split(":")[0], told.returncode)
    return {
        "case": case, "truth": TRUTH[case], "verdict": found["verdict"], "status": ran.returncode, "stopped": found["stopped"],
        "line": place.get("line", ""), "called": (found.get("waits") or {}).get("called") or "",
        "needs_bytes": small["capacity_bytes"] if small else "", "arithmetic_bytes": NEEDS.get(case, ""),
        "explain": log, "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def main():
    oomph, python, out, *cases = sys.argv[1:]
    rows = []
    for case in cases or TRUTH:
        rows.append(answer(oomph, python, case))
        print(rows[-1], flush=True)
        with open(out, "w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
    wrong = [row["case"] for row in rows if row["verdict"] != row["truth"]]
    sys.exit("wrong: %s" % ", ".join(wrong) if wrong else 0)


main()

#!/usr/bin/env python3
"""Adds a reading to `frameworks.csv`: one program under `oomph dry-run`.

    frameworks.py OOMPH FRAMEWORK CARD NAME [--note TEXT] -- DRY-RUN-ARGUMENTS... -- PROGRAM...

NAME is what the table calls the program. The version is that of FRAMEWORK where the report knows it, with PyTorch's; a
further word `--version TEXT` says it where it does not. `cargo run -p xtask -- frameworks` makes the page of it.
"""

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import time

from table import append

FIELDS = ["date", "framework", "version", "python", "program", "card", "verdict", "allocated_bytes", "reserved_bytes",
          "process_bytes", "seconds", "host_bytes", "note"]
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "frameworks.csv")


def main():
    words = sys.argv[1:]
    if "--" not in words:
        sys.exit(__doc__)
    at = words.index("--")
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("oomph", "framework", "card", "name"):
        parser.add_argument(name)
    parser.add_argument("--note", default="")
    parser.add_argument("--version")
    parser.add_argument("--python", default="")
    told = parser.parse_args(words[:at])

    begun = time.monotonic()
    done = subprocess.run([told.oomph, "dry-run", "--gpu", told.card, "--format", "json", *words[at + 1:]],
                          stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - begun
    report = json.loads(done.stdout)
    # The fullest card speaks for all; an OOM is told by what it would have needed.
    device = max(report["devices"], key=lambda device: device["peak"]["process_bytes"])
    peak = device.get("needed") or device["peak"]
    torch = report["frameworks"].get("torch")
    version = told.version or report["frameworks"].get(told.framework, "")
    if torch and told.framework != "torch":
        version = f"{version}, torch {torch}" if version else f"torch {torch}"
    row = {
        "date": datetime.date.today().isoformat(), "framework": told.framework, "version": version or torch or "",
        "python": told.python, "program": told.name, "card": told.card, "verdict": report["verdict"],
        "allocated_bytes": peak["allocated_bytes"], "reserved_bytes": peak["reserved_bytes"],
        "process_bytes": peak["process_bytes"], "seconds": f"{seconds:.1f}",
        "host_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, "note": told.note,
    }
    append(TABLE, FIELDS, row)


main()

#!/usr/bin/env python3
"""Adds a reading to `static.csv`: one program whose CUDA runtime is, or could be, linked in statically.

    static.py OOMPH FAMILY VERSION RUNTIME [--program TEXT] [--accounted TEXT] [--exact TEXT] [--advice TEXT] -- PROGRAM...

RUNTIME is static, shared, none (built without CUDA) or driver (calls the driver alone). The program is run on an RTX 4090;
its status and the first line of what oomph says are read. `cargo run -p xtask -- frameworks` makes the page of it.
"""

import argparse
import datetime
import os
import subprocess
import sys

from table import append

FIELDS = ["date", "family", "version", "program", "runtime", "exit_status", "message", "accounted", "exact", "advice"]
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "static.csv")
ANSWERS = ("oomph could not run this:", "error:", "failed:", "fits:", "no GPU use:", "does not fit:")


def main():
    words = sys.argv[1:]
    if "--" not in words:
        sys.exit(__doc__)
    at = words.index("--")
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("oomph", "family", "version", "runtime"):
        parser.add_argument(name)
    for name in ("--program", "--accounted", "--exact", "--advice"):
        parser.add_argument(name, default="")
    told = parser.parse_args(words[:at])
    # Wide enough that the first line is not broken.
    done = subprocess.run([told.oomph, "dry-run", "--gpu", "rtx-4090", "--", *words[at + 1:]], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "400"})
    print(done.stdout)
    message = next(line for line in done.stdout.splitlines() if line.startswith(ANSWERS))
    # Where the file is called by its path, that of this machine is nobody's business.
    for folder in {os.path.dirname(word) for word in words[at + 1:] if "/" in word}:
        message = message.replace(folder + "/", "")
    program = told.program or " ".join(os.path.basename(word) for word in words[at + 2:])
    row = {"date": datetime.date.today().isoformat(), "family": told.family, "version": told.version,
           "program": program, "runtime": told.runtime, "exit_status": done.returncode, "message": message,
           "accounted": told.accounted, "exact": told.exact, "advice": told.advice}
    append(TABLE, FIELDS, row)


if __name__ == "__main__":
    main()

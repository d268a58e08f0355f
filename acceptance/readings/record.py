#!/usr/bin/env python3
"""Records what programs of `acceptance/programs` take on the virtual GPU, one CSV row each.

    record.py OOMPH OUT.csv PYTHON... [-- ROW...]

Each PYTHON is an interpreter of an environment with some version of PyTorch. A ROW is a program with its arguments in
one word, for example "vision.py --amp"; without any, a default list is used. Rows are appended.
"""

import csv
import datetime
import json
import os
import subprocess
import sys

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs")
DEFAULT = ["mlp.py", "convnet.py", "lstm.py", "gru_ctc.py --ctc native", "gru_ctc.py --ctc cudnn", "amp_gradscaler.py",
           "expandable.py", "vision.py", "vision.py --amp --channels-last", "trainer_gpt2.py --batch-size 4",
           "generate.py", "vqgan_clip.py --size 380", "compile.py"]
FIELDS = ["date", "gpu", "python", "torch", "cudnn", "program", "verdict", "allocated_bytes", "reserved_bytes",
          "process_bytes", "context_bytes", "printed_equal"]


def printed(stderr, name):
    """The last value that the program printed under a name; JSON mode sends its output to stderr."""
    values = [line.split("=", 1)[1] for line in stderr.splitlines() if line.startswith(name + "=")]
    return int(values[-1]) if values else None


def reading(oomph, python, row, gpu):
    words = row.split()
    command = [oomph, "dry-run", "--gpu", gpu, "--until-exit", "--no-probe", "--format", "json", "--", python,
               os.path.join(PROGRAMS, words[0]), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    device = report["devices"][0]
    peak = device["peak"]
    told = [printed(done.stderr, "max_memory_reserved"), printed(done.stderr, "max_memory_allocated")]
    equal = None not in told and told == [peak["reserved_bytes"], peak["allocated_bytes"]]
    version = subprocess.run([python, "-c", "import platform; print(platform.python_version())"],
                             capture_output=True, text=True, check=True).stdout.strip()
    return {
        "date": datetime.date.today().isoformat(), "gpu": device["gpu"], "python": version,
        "torch": report["frameworks"].get("torch"), "cudnn": report["frameworks"].get("cudnn"), "program": row,
        "verdict": report["verdict"], "allocated_bytes": peak["allocated_bytes"],
        "reserved_bytes": peak["reserved_bytes"], "process_bytes": peak["process_bytes"],
        "context_bytes": peak["context_bytes"], "printed_equal": "yes" if equal else "no",
    }


def main():
    arguments, rows = sys.argv[1:], DEFAULT
    if "--" in arguments:
        at = arguments.index("--")
        arguments, rows = arguments[:at], arguments[at + 1:]
    if len(arguments) < 3:
        sys.exit(__doc__)
    oomph, out, *pythons = arguments
    fresh = not os.path.exists(out)
    with open(out, "a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        for python in pythons:
            for row in rows:
                try:
                    writer.writerow(reading(oomph, python, row, "rtx-4090"))
                except (ValueError, KeyError, IndexError, subprocess.SubprocessError) as error:
                    print(f"{python} {row}: {error}", file=sys.stderr)
                file.flush()


main()

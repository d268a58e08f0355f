#!/usr/bin/env python3
"""The ladder of the Hugging Face guide for one GPU: a BERT-large, and what each remedy makes of its memory.

    ladder.py OOMPH PYTHON OUT.csv

PYTHON is an interpreter of an environment with torch, transformers, accelerate and bitsandbytes. The guide
("Methods and tools for efficient training on a single GPU", as of transformers 4.27) measured each rung on a V100
through NVML, the CUDA context of 1343 MB included, with the eager attention that BERT had then. What is compared is
the order of the rungs and the sign of what each one saves: the library has changed since, so the figures have too.
"""

import csv
import datetime
import itertools
import json
import os
import subprocess
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs", "training", "bert_classifier.py")
GPU = "v100-32gb"
TOGETHER = "--batch-size 1 --accumulate 4 --checkpointing --fp16"
PUBLISHED = [
    ("as it is", "--batch-size 4", 14949),
    ("accumulation", "--batch-size 1 --accumulate 4", 8681),
    ("accumulation and checkpointing", "--batch-size 1 --accumulate 4 --checkpointing", 6775),
    ("fp16", "--batch-size 4 --fp16", 13939),
    ("accumulation, checkpointing and fp16", TOGETHER, 7275),
    ("Adafactor", "--batch-size 4 --optim adafactor", 12295),
    ("all with Adafactor", TOGETHER + " --optim adafactor", 4847),
    ("8-bit Adam", "--batch-size 4 --optim adamw_bnb_8bit", 13085),
    ("all with 8-bit Adam", TOGETHER + " --optim adamw_bnb_8bit", 5363),
]
FIELDS = ["date", "gpu", "torch", "transformers", "bitsandbytes", "rung", "options", "published_mb", "process_mb",
          "context_mb", "allocated_mb"]


def versions(python):
    code = "import transformers as t, bitsandbytes as b; print(t.__version__, b.__version__)"
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split()


def reading(oomph, python, options):
    command = [oomph, "dry-run", "--gpu", GPU, "--no-owners", "--no-probe", "--format", "json", "--", python, PROGRAM,
               "--attention", "eager", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    if report["verdict"] != "fits":
        sys.exit(f"{options}: {report['verdict']}\n{done.stderr[-2000:]}")
    return report


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    oomph, python, out = sys.argv[1:]
    transformers, bitsandbytes = versions(python)
    rows = []
    for rung, options, published in PUBLISHED:
        report = reading(oomph, python, options)
        peak = report["devices"][0]["peak"]
        rows.append({
            "date": datetime.date.today().isoformat(), "gpu": GPU, "torch": report["frameworks"]["torch"],
            "transformers": transformers, "bitsandbytes": bitsandbytes, "rung": rung, "options": options,
            "published_mb": published, "process_mb": round(peak["process_bytes"] / 2**20),
            "context_mb": round(peak["context_bytes"] / 2**20), "allocated_mb": round(peak["allocated_bytes"] / 2**20),
        })
        print(f"{rung:40} published {published:6} MB, here {rows[-1]['process_mb']:6} MB", flush=True)
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    wrong = [
        f"{one['rung']} and {other['rung']}" for one, other in itertools.combinations(rows, 2)
        if (one["published_mb"] < other["published_mb"]) != (one["process_mb"] < other["process_mb"])
    ]
    sys.exit("other order than published: " + "; ".join(wrong) if wrong else 0)


main()

#!/usr/bin/env python3
"""What `oomph fix` finds for the programs that everybody has, and how long it takes.

    fixes.py OOMPH PYTHON OUT.csv [ROW ...]

PYTHON is an interpreter of an environment with acceptance/requirements/torch-2.15.txt. Each row is one search with a
minute of time, on cards that the program does not fit; the CSV has a line for each fix, in the order of the answer.
Rows that are named replace those of an OUT.csv that is there.
"""

import datetime
import json
import os
import subprocess
import sys

from table import refill

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs")
ROWS = {
    "GPT-2, Trainer, batch 32": ("--gpu rtx-3060", "trainer_gpt2.py --batch-size 32"),
    "Llama-2-7B, full fine-tuning": (
        "--gpu rtx-4090 --random-weights", "training/full_finetune.py --model {programs}/training/llama-2-7b",
    ),
    "8 B with a vocabulary of 128k, LoRA": (
        "--gpu rtx-3090 --random-weights", "training/lora_finetune.py --model {programs}/training/llama-3-8b",
    ),
    "BERT-large, 512 tokens": ("--gpu t4", "training/bert_classifier.py"),
    "ViT, plain loop": ("--gpu rtx-3060", "training/image_classifier.py"),
    "ConvNeXt, plain loop": ("--gpu rtx-3060", "training/image_classifier.py --model convnext_base"),
    "SDXL, 4 images of 1024": ("--gpu rtx-3080 --random-weights --until-exit", "fixes/sdxl.py"),
    "Flux.1-dev, 1024": ("--gpu rtx-4090 --random-weights --until-exit", "fixes/flux.py"),
    "diffusers script, LoRA of SD 1.5, batch 16": ("--gpu rtx-3060", "fixes/train_text_to_image_lora.py"),
    "losses kept with their graphs": ("--vram 1GiB --until-exit", "leaking.py --steps 40"),
    "evaluation that gathers logits, plain loop": (
        "--gpu rtx-3060 --until-exit", "training/evaluate.py --samples 96",
    ),
    "evaluation that gathers logits, Trainer": (
        "--gpu rtx-3060 --until-exit", "training/evaluate.py --trainer --samples 96",
    ),
}
FIELDS = ["date", "cpus", "row", "options", "needs_gib", "place", "remedies", "result", "peak_gib", "found_after_seconds",
          "tried", "elapsed_seconds"]


def search(oomph, python, row):
    options, program = ROWS[row]
    script, *rest = program.format(programs=PROGRAMS).split()
    command = [oomph, "fix", *options.split(), "--max-time", "60s", "--format", "json", "--quiet", "--",
               python, os.path.join(PROGRAMS, script), *rest]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    common = {
        "date": datetime.date.today().isoformat(), "cpus": os.cpu_count(), "row": row, "options": options,
        "needs_gib": gib(report["baseline"]["peak_bytes"]), "tried": report["tried"],
        "elapsed_seconds": round(report["elapsed_seconds"], 1),
    }
    for place, fix in enumerate(report["fixes"], 1):
        yield dict(common, place=place, remedies=" + ".join(fix["remedies"]), result=fix["result"],
                   peak_gib=gib(fix["peak_bytes"]), found_after_seconds=round(fix["found_after_seconds"], 1))
    if not report["fixes"]:
        yield dict(common, place=0)


def gib(count):
    return None if count is None else round(count / 2**30, 2)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    oomph, python, out, *wanted = sys.argv[1:]
    refill(out, FIELDS, "row", ROWS, wanted, lambda row: search(oomph, python, row))


if __name__ == "__main__":
    main()

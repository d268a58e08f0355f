"""Holds `oomph plan` against `oomph dry-run` on the jobs of this folder, and writes the readings into a table.

    python models.py MODELS
    python read.py MODELS REPORTS ../jobs.csv [--oomph PATH] [--only NAME]

REPORTS keeps the report of each dry run, so that a job is run once; remove a file there to have it run anew.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
EIGHT = ["torchrun", "--nproc-per-node", "8"]
# name: the card, the launcher, the program with its arguments (the model first), and what is planned.
JOBS = {
    "dpo-05b": ("a100-80gb", [], "preferences.py qwen2.5-0.5b dpo --batch 2 --seq 512",
                "qwen2.5-0.5b --task dpo --batch 2 --seq 512"),
    "dpo-15b": ("a100-80gb", [], "preferences.py llama-3.2-1b dpo --batch 4 --seq 1024",
                "llama-3.2-1b --task dpo --batch 4 --seq 1024"),
    "dpo-lora": ("a100-80gb", [], "preferences.py qwen2.5-1.5b dpo --lora --batch 2 --seq 512",
                 "qwen2.5-1.5b --task dpo --method lora --batch 2 --seq 512"),
    "reward-1b": ("a100-80gb", [], "preferences.py llama-3.2-1b reward --batch 4 --seq 1024",
                  "llama-3.2-1b --task reward --batch 4 --seq 1024"),
    "grpo": ("a100-80gb", [], "preferences.py qwen2.5-0.5b grpo --batch 8 --seq 256 --new-tokens 64",
             "qwen2.5-0.5b --task grpo --seq 256 --new-tokens 64"),
    "grpo-15b": ("a100-80gb", [], "preferences.py qwen2.5-1.5b grpo --batch 8 --seq 256 --new-tokens 32",
                 "qwen2.5-1.5b --task grpo --seq 256 --new-tokens 32"),
    "contr": ("a100-80gb", [], "contrastive.py bert-base --batch 64 --seq 128",
              "bert-base --task contrastive --precision bf16 --batch 64 --seq 128"),
    "contr-b16": ("rtx-4090", [], "contrastive.py bert-base --batch 16 --seq 256",
                  "bert-base --task contrastive --precision bf16 --batch 16 --seq 256"),
    "eval": ("a100-80gb", [], "evaluation.py qwen2.5-0.5b --bf16",
             "qwen2.5-0.5b --task evaluate --batch 8 --seq 512 --samples 32"),
    "eval-gpt2": ("rtx-4090", [], "evaluation.py gpt2 --bf16 --batch 4 --samples 20",
                  "gpt2 --task evaluate --batch 4 --seq 512 --samples 20"),
    "split-7b-2": ("rtx-4090:2", [], "split.py llama-3-8b --seq 512 --new-tokens 4",
                   "llama-3-8b --task generate --seq 512 --new-tokens 4"),
    "split-15b-2": ("rtx-4090:2", [], "split.py qwen2.5-1.5b --seq 1024 --new-tokens 4",
                    "qwen2.5-1.5b --task generate --seq 1024 --new-tokens 4"),
    "fsdp2-05b": ("h100:8", EIGHT, "sharded.py qwen2.5-0.5b fsdp2 --seq 1024",
                  "qwen2.5-0.5b --task full --fsdp --seq 1024"),
    "fsdp2-3b": ("h100:8", EIGHT, "sharded.py qwen2.5-1.5b fsdp2 --seq 2048 --checkpointing",
                 "qwen2.5-1.5b --task full --fsdp --seq 2048 --checkpointing"),
    "fsdp1-05b": ("h100:8", EIGHT, "sharded.py qwen2.5-0.5b fsdp1 --seq 1024",
                  "qwen2.5-0.5b --task full --fsdp --seq 1024"),
    "ddp-05b": ("h100:2", ["torchrun", "--nproc-per-node", "2"], "sharded.py qwen2.5-0.5b ddp --seq 512",
                "qwen2.5-0.5b --task full --seq 512"),
}
COLUMNS = ["job", "gpu", "program", "plan", "allocated", "reserved", "process", "torch", "transformers", "trl", "accelerate", "date"]


def dry_run(oomph, models, report, gpu, launcher, program):
    """Runs a job on the virtual GPU. Its report lies in a file."""
    script, model, *rest = program.split()
    bin_folder = pathlib.Path(sys.executable).parent
    start = [str(bin_folder / launcher[0]), *launcher[1:]] if launcher else [sys.executable]
    subprocess.run(
        [oomph, "dry-run", "--gpu", gpu, "--random-weights", "--until-exit", "--format", "json", "--report", str(report),
         "--", *start, str(HERE / script), str(models / model), *rest],
        env={**os.environ, "PYTHONPATH": str(HERE)}, stdout=subprocess.DEVNULL, check=False,
    )


def versions():
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "trl", "accelerate")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("reports", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--oomph", default="oomph")
    parser.add_argument("--only")
    args = parser.parse_args()
    rows = []
    for name, (gpu, launcher, program, plan) in JOBS.items():
        report = args.reports / f"{name}.json"
        if not report.exists() and args.only in (None, name):
            dry_run(args.oomph, args.models, report, gpu, launcher, program)
        if not report.exists():
            print(f"{name}: not run", file=sys.stderr)
            continue
        devices = [device for device in json.loads(report.read_text())["devices"] if device["peak"]["allocated_bytes"]]
        peak = max((device["peak"] for device in devices), key=lambda peak: peak["process_bytes"])
        said = subprocess.run([args.oomph, "plan", *plan.split(), "--gpu", gpu, "--format", "json"],
                              capture_output=True, text=True)
        planned = max(json.loads(said.stdout)["devices"], key=lambda device: device["expected_bytes"])
        low, expected, high = (planned[f"{end}_bytes"] for end in ("low", "expected", "high"))
        agrees = low <= peak["process_bytes"] <= high
        print(f"{name}: {peak['process_bytes'] / expected - 1:+.1%}", "" if agrees else "BEYOND", file=sys.stderr)
        rows.append({"job": name, "gpu": gpu, "program": " ".join([*launcher, program]), "plan": plan,
                     "allocated": peak["allocated_bytes"], "reserved": peak["reserved_bytes"],
                     "process": peak["process_bytes"], **versions(), "date": datetime.date.today().isoformat()})
    with args.table.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What `oomph fix` says a remedy costs in time, beside what was measured and published.

    prices.py OOMPH PYTHON OUT.csv [PROGRAM ...]

PYTHON is an interpreter of an environment with acceptance/requirements/torch-2.15.txt, torchvision, peft and bitsandbytes.
Each program is searched once, on the card of the publication and with 3 % less memory than it needs, so that every remedy
that saves anything is tried by itself. Published figures are samples or tokens a second; the CSV has the ratio of times, as an
interval where several are published. Programs that are named replace those of an OUT.csv that is there.
"""

import csv
import json
import os
import subprocess
import sys

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs")
GUIDE = "transformers 4.27, perf_train_gpu_one: V100 16 GB, samples/s"
TORCHTUNE = "torchtune README, optimization flags: A100, tokens/s, with torch.compile"
RULE = "rule of thumb: 20 % (transformers, perf_train_gpu_one) to 33 % (one more forward pass, arXiv 1604.06174)"
AMP = "pytorch.org blog on mixed precision: 1.5x to 5.5x on V100; figure for all networks"
ROWS = {
    "BERT-large, fp32, 4 of 512": ("v100-16gb", "training/bert_classifier.py --batch-size 4 --attention eager", {
        "micro-batch/4": (8.86 / 7.75, 8.86 / 7.75, GUIDE + ": 8.86 to 7.75"),
        "gradient-checkpointing": (7.75 / 5.99, 7.75 / 5.99, GUIDE + ": 7.75 to 5.99, with accumulation"),
        "autocast": (9.9 / 26.4, 8.86 / 18.6, GUIDE + ": 8.86 to 18.6; OpenBMB ModelCenter, V100 32 GB: 9.9 to 26.4"),
        "adam-8bit": (1.04, 1.06, "transformers, perf_train_gpu_one, 8-bit Adam: 4 to 6 % slower"),
    }),
    "Llama-3.2-3B, full, 2 of 4096": (
        "a100-80gb", "training/full_finetune.py --model {programs}/training/llama-3.2-3b --batch-size 2 --length 4096", {
            "gradient-checkpointing": (9174 / 7210, 9174 / 7210, TORCHTUNE + ": 9174 to 7210"),
            "chunked-cross-entropy": (8998 / 9174, 8998 / 9174, TORCHTUNE + ": 8998 to 9174"),
            "adam-8bit": (7301 / 6960, 7301 / 6960, TORCHTUNE + ": 7301 to 6960"),
            "optimizer-in-backward": (7210 / 7309, 7210 / 7309, TORCHTUNE + ": 7210 to 7309"),
            "lora": (6960 / 8210, 6960 / 8210, TORCHTUNE + ": 6960 to 8210, under checkpointing"),
        },
    ),
    "Llama-3.2-3B, LoRA, 2 of 4096": (
        "a100-80gb", "training/lora_finetune.py --model {programs}/training/llama-3.2-3b --batch-size 2 --length 4096", {
            "qlora": (8210 / 8035, 8210 / 8035, TORCHTUNE + ": 8210 to 8035"),
            "weights-nf4": (8210 / 8035, 8210 / 8035, TORCHTUNE + ": 8210 to 8035"),
        },
    ),
    "Llama-3-8B, LoRA, 2 of 2048": (
        "rtx-4090", "training/lora_finetune.py --model {programs}/training/llama-3-8b --batch-size 2", {
            "qlora": (3083 / 2413, 3083 / 2413, "torchtune README of 0.4: RTX 4090, tokens/s: 3083 to 2413"),
            "weights-nf4": (3083 / 2413, 3083 / 2413, "torchtune README of 0.4: RTX 4090, tokens/s: 3083 to 2413"),
        },
    ),
    "GPT-2 124M, Trainer, fp32, 16 of 1024": ("v100-16gb", "trainer_gpt2.py --batch-size 16", {
        "gradient-checkpointing": (1.20, 1.33, RULE),
        "autocast": (1 / 5.5, 1 / 1.5, AMP),
    }),
    "ViT-B/16, fp32, 128 of 224": ("v100-16gb", "training/image_classifier.py", {
        "gradient-checkpointing": (1.20, 1.33, RULE),
        "autocast": (1 / 5.5, 1 / 1.5, AMP),
    }),
    "ConvNeXt-base, fp32, 64 of 224": (
        "v100-16gb", "training/image_classifier.py --model convnext_base --batch-size 64", {
            "gradient-checkpointing": (1.20, 1.33, RULE),
            "autocast": (1 / 5.5, 1 / 1.5, AMP),
        },
    ),
    "ResNet-50, fp32, 128 of 224": ("v100-16gb", "training/image_classifier.py --model resnet50", {
        "autocast": (1 / 5.5, 1 / 1.5, AMP),
    }),
}
FIELDS = ["program", "card", "remedy", "published_low", "published_high", "computed_low", "computed_high", "reached",
          "source"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr[-2000:]))


def search(oomph, python, name):
    card, program, published = ROWS[name]
    script, *rest = program.format(programs=os.path.abspath(PROGRAMS)).split()
    program = ["--random-weights", "--quiet", "--format", "json", "--", python, os.path.join(PROGRAMS, script), *rest]
    need = run([oomph, "dry-run", "--vram", "400GiB", "--no-probe", *program])["devices"][0]["peak"]["process_bytes"]
    # Knobs are asked for without their amount.
    allowed = ",".join(sorted({remedy.split("/")[0] for remedy in published}))
    report = run([oomph, "fix", "--gpu", card + ":1", "--target", str(need * 97 // 100), "--allow", allowed,
                  "--fixes", "9", "--max-time", "240s", *program])
    found = {fix["remedies"][0]: fix for fix in report["fixes"] if len(fix["remedies"]) == 1}
    for remedy, (low, high, source) in published.items():
        row = {"program": name, "card": card, "remedy": remedy, "published_low": round(low, 3),
               "published_high": round(high, 3), "source": source}
        price = found[remedy]["slowdown"] if remedy in found else None
        if price:
            # A tenth more or less counts as equal.
            reached = price["low"] <= high * 1.1 and price["high"] >= low / 1.1
            row.update(computed_low=price["low"], computed_high=price["high"], reached="yes" if reached else "no")
        else:
            row["reached"] = found[remedy]["slowdown_unknown"] if remedy in found else "no fix"
        yield row


def ordered(rows):
    """How many pairs of remedies stand in the published order, of those that are published 10 % apart or more."""
    middle = lambda row, kind: (float(row[kind + "_low"]) * float(row[kind + "_high"])) ** 0.5
    priced = [row for row in rows if row.get("computed_low")]
    right = all_pairs = 0
    for place, one in enumerate(priced):
        for other in priced[place + 1:]:
            published = middle(one, "published") / middle(other, "published")
            if not 1 / 1.1 < published < 1.1:
                all_pairs += 1
                right += (published > 1) == (middle(one, "computed") > middle(other, "computed"))
    return right, all_pairs


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    oomph, python, out, *wanted = sys.argv[1:]
    lines = []
    if wanted and os.path.exists(out):
        with open(out, newline="") as file:
            lines = [line for line in csv.DictReader(file) if line["program"] not in wanted]
    for name in wanted or ROWS:
        for line in search(oomph, python, name):
            print(*(line.get(field) for field in FIELDS[:-1]), flush=True)
            lines.append(line)
        with open(out, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    print("%d of %d pairs in the published order" % ordered(lines))


main()

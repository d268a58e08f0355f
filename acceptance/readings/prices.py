#!/usr/bin/env python3
"""What a remedy costs in time by the roofline of `oomph fix`, beside what was measured and published.

    prices.py OOMPH PRICE PYTHON OUT.csv [PROGRAM ...]

PRICE is the example of that name of oomph-gpu, built; PYTHON an interpreter of an environment with torch, torchvision,
transformers, peft and bitsandbytes. Each change is made by hand in training/priced.py, so that it is compared with what the
publication compares it with, and both programs run on the virtual card of the publication, with memory enough. Published are
samples or tokens a second; the CSV has ratios of times, as intervals where several are published. `reached` says whether
the intervals meet within 10 %. Programs that are named replace those of an OUT.csv that is there.
"""

import csv
import os
import subprocess
import sys
import tempfile

PROGRAMS = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs"))
LLAMA = PROGRAMS + "/training/llama-3"
GUIDE = "transformers 4.27, perf_train_gpu_one: V100 16 GB, samples/s "
TORCHTUNE = "torchtune README, optimization flags: A100, tokens/s, compiled, "
TORCHTUNE_04 = "torchtune README of 0.4: tokens/s, compiled, "
RULE = "transformers, perf_train_gpu_one: 20 %; arXiv 1604.06174: 30 %, the cost of a forward pass"
AMP = "pytorch.org, What every user should know about mixed precision training: 1.5x to 5.5x on V100, over all networks"
CHECKPOINTED = "--checkpointing --chunked-loss"


def once(ratio):
    return ratio, ratio


# Program: the card, the program, and for each remedy what is added before and after, the published ratio and its source.
ROWS = {
    "BERT-large, fp32, 4 of 512": ("v100-16gb", "--model bert-large --attention eager", {
        "accumulation, 4 x 1": ("", "--accumulate 4", once(8.86 / 7.75), GUIDE + "8.86, 7.75"),
        "checkpointing": ("--accumulate 4", "--accumulate 4 --checkpointing", once(7.75 / 5.99), GUIDE + "7.75, 5.99"),
        "autocast, fp16": ("", "--autocast float16", (9.9 / 26.4, 8.86 / 18.6),
                           GUIDE + "8.86, 18.6; OpenBMB ModelCenter, V100 32 GB: 9.9, 26.4"),
        "8-bit Adam": ("", "--optimizer adamw-8bit", (1.04, 1.06), GUIDE + "4 to 6 % less"),
    }),
    "Llama-3.2-3B, bf16, 2 of 4096": (
        "a100-80gb", "--model %s.2-3b --dtype bfloat16 --batch-size 2 --length 4096 --optimizer adamw-fused" % LLAMA, {
            "chunked loss": ("", "--chunked-loss", once(8998 / 9174), TORCHTUNE + "8998, 9174"),
            "checkpointing": ("--chunked-loss", CHECKPOINTED, once(9174 / 7210), TORCHTUNE + "9174, 7210"),
            "8-bit Adam": (CHECKPOINTED, CHECKPOINTED + " --optimizer adamw-8bit", once(7301 / 6960),
                           TORCHTUNE + "7301, 6960"),
            "LoRA": (CHECKPOINTED + " --optimizer adamw-8bit", "--checkpointing --lora", once(6960 / 8210),
                     TORCHTUNE + "6960, 8210"),
        },
    ),
    "Llama-3.2-3B, LoRA, 2 of 4096": (
        "a100-80gb", "--model %s.2-3b --dtype bfloat16 --batch-size 2 --length 4096 --lora --checkpointing" % LLAMA, {
            "NF4": ("", "--nf4", once(8210 / 8035), TORCHTUNE + "8210, 8035"),
        },
    ),
    "Llama-3-8B, LoRA, 2 of 2048": (
        "rtx-4090", "--model %s-8b --dtype bfloat16 --batch-size 2 --length 2048 --lora --checkpointing" % LLAMA, {
            "NF4": ("", "--nf4", once(3083 / 2413), TORCHTUNE_04 + "RTX 4090: 3083, 2413"),
        },
    ),
    "Llama-3-8B, full, 2 of 2048": (
        "rtx-a6000", "--model %s-8b --dtype bfloat16 --batch-size 2 --length 2048 --checkpointing" % LLAMA, {
            "LoRA": ("--optimizer adamw-8bit", "--lora", once(2579 / 4699), TORCHTUNE_04 + "RTX A6000: 2579, 4699"),
        },
    ),
    "GPT-2 medium, fp16, 8 of 1024": ("a100-80gb", "--model gpt2-medium --batch-size 8 --length 1024 --autocast float16", {
        "checkpointing": ("", "--checkpointing", (1.20, 1.33), RULE),
        "fused attention": ("--attention eager", "", (1 / 3.0, 1 / 1.7),
                            "arXiv 2205.14135, table 2, A100: 3.0x over Hugging Face, 1.7x over Megatron-LM"),
    }),
    "ViT-B/16, fp32, 64 images": ("v100-16gb", "--model vit_b_16 --batch-size 64", {
        "autocast, fp16": ("", "--autocast float16", (1 / 5.5, 1 / 1.5), AMP),
    }),
    "ResNet-50, fp32, 64 images": ("v100-16gb", "--model resnet50 --batch-size 64", {
        "autocast, fp16": ("", "--autocast float16", (1 / 5.5, 1 / 1.5), AMP),
    }),
    "ConvNeXt-base, fp32, 64 images": ("v100-16gb", "--model convnext_base --batch-size 64", {
        "autocast, fp16": ("", "--autocast float16", (1 / 5.5, 1 / 1.5), AMP),
    }),
}
FIELDS = ["program", "card", "remedy", "published_low", "published_high", "computed_low", "computed_high", "reached",
          "source"]


def recorded(oomph, python, card, options, path):
    """Run the program on the virtual card; the path of what it recorded."""
    if not os.path.exists(path):
        command = [oomph, "dry-run", "--gpu", card, "--vram", "200GiB", "--no-probe", "--allow-writes", "--random-weights",
                   "--quiet", "--", python, PROGRAMS + "/training/priced.py", "--record", path, *options.split()]
        done = subprocess.run(command, capture_output=True, text=True, cwd=os.path.dirname(path))
        if not os.path.exists(path):
            sys.exit("%s\n%s\n%s" % (" ".join(command), done.stdout[-2000:], done.stderr[-2000:]))
    return path


def priced(oomph, price, python, name, folder):
    card, program, remedies = ROWS[name]
    files = {}
    for remedy, (before, after, (low, high), source) in remedies.items():
        paths = []
        for added in (before, after):
            options = " ".join((program + " " + added).split())
            files.setdefault(options, os.path.join(folder, "%d.json" % len(files)))
            paths.append(recorded(oomph, python, card, options, files[options]))
        done = subprocess.run([price, card, *paths], capture_output=True, text=True, check=True)
        computed = [float(word) for word in done.stdout.split()]
        # A tenth more or less counts as equal.
        reached = computed[0] <= high * 1.1 and computed[1] >= low / 1.1
        yield dict(program=name, card=card, remedy=remedy, published_low=round(low, 3), published_high=round(high, 3),
                   computed_low=computed[0], computed_high=computed[1], reached="yes" if reached else "no", source=source)


def middle(row, kind):
    return (float(row[kind + "_low"]) * float(row[kind + "_high"])) ** 0.5


def in_order(rows):
    """How many pairs stand in the published order, of those that are published 10 % apart or more."""
    right = pairs = 0
    for place, one in enumerate(rows):
        for other in rows[place + 1:]:
            published = middle(one, "published") / middle(other, "published")
            if not 1 / 1.1 < published < 1.1:
                pairs += 1
                right += (published > 1) == (middle(one, "computed") > middle(other, "computed"))
    return right, pairs


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    oomph, price, python, out, *wanted = sys.argv[1:]
    lines = []
    if wanted and os.path.exists(out):
        with open(out, newline="") as file:
            lines = [line for line in csv.DictReader(file) if line["program"] not in wanted]
    for name in wanted or ROWS:
        with tempfile.TemporaryDirectory() as folder:
            for line in priced(oomph, price, python, name, folder):
                print(*(line[field] for field in FIELDS[:-1]), sep=", ", flush=True)
                lines.append(line)
        with open(out, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    print("%d of %d pairs in the published order" % in_order(lines))


main()

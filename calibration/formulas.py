"""Holds the accounting of README.md against the readings: what a decoder of Llama's kind keeps for backward.

usage: formulas.py [text.csv]
"""

import csv
import pathlib
import statistics
import sys

# hidden, intermediate, layers, attention heads, key-value heads, width of a head, vocabulary, norms of queries and keys
SHAPES = {
    "llama-2-7b": (4096, 11008, 32, 32, 32, 128, 32000, False),
    "llama-3-8b": (4096, 14336, 32, 32, 8, 128, 128256, False),
    "llama-3.2-1b": (2048, 8192, 16, 32, 8, 64, 128256, False),
    "mistral-7b": (4096, 14336, 32, 32, 8, 128, 32000, False),
    "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 64, 151936, False),
    "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 128, 151936, False),
    "qwen2.5-7b": (3584, 18944, 28, 28, 4, 128, 152064, False),
    "qwen3-0.6b": (1024, 3072, 28, 16, 8, 128, 151936, True),
    "qwen3-8b": (4096, 12288, 36, 32, 8, 128, 151936, True),
}


def kept(shape, dtype, checkpointing, tokens):
    """Bytes that full training keeps between forward and backward, gradients and weights apart."""
    h, f, layers, a, k, d, vocabulary, normed = shape
    q, kv = a * d, k * d
    linear = 2 * q * h + 2 * kv * h + 3 * f * h
    norms = normed * 4 * (a + k)
    if dtype == "bf16":
        layer = tokens * (16 * h + 8 + 4 * q + 4 * kv + 8 * f + 4 * a + normed * 6 * (q + kv) + norms)
        between, last = 2 * h * tokens, tokens * (8 * h + 4)
    elif dtype == "amp-bf16":
        layer = tokens * (26 * h + 8 + 4 * q + 4 * kv + 8 * f + 4 * a + normed * 6 * (q + kv) + norms) + 2 * linear
        between, last = 4 * h * tokens, tokens * (10 * h + 4) + 2 * h * vocabulary
    else:
        layer = tokens * (24 * h + 8 + 8 * q + 8 * kv + 16 * f + 4 * a + normed * 8 * (q + kv) + norms)
        between, last = 4 * h * tokens, tokens * (12 * h + 4)
    return layers * (between if checkpointing == "full" else layer) + last + 4 * vocabulary * tokens


def main():
    default = pathlib.Path(__file__).with_name("text.csv")
    with open(sys.argv[1] if len(sys.argv) > 1 else default, newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["model"] in SHAPES and r["task"] == "full"
                and r["attention"] == "sdpa" and r["padding"] == "0"]
    errors = []
    for row in rows:
        said = kept(SHAPES[row["model"]], row["dtype"], row["checkpointing"], int(row["batch"]) * int(row["length"]))
        read = int(row["saved_for_backward"])
        errors.append(abs(said / read - 1))
        print(f"{said / read - 1:+8.3%} {read - said:>12} {row['model']} {row['dtype']} {row['checkpointing']} {row['batch']} x {row['length']}")
    errors.sort()
    print(f"{len(errors)} rows: median {statistics.median(errors):.3%}, 90th percentile {errors[int(len(errors) * 0.9)]:.3%}, worst {errors[-1]:.3%}")


main()

#!/usr/bin/env python3
"""Makes `generation.csv`: whether each way of generating text runs to its limit in a dry run, or the report says that it did not.

    generation.py OOMPH PYTHON [KIND/VOCABULARY ...]

The limit is that of the program's own arguments; what is generated is never computed, and the longest text takes the most.
Vocabularies are below and above what the values engine computes, alone and with beams.
"""

import argparse
import datetime
import json
import os
import re
import subprocess

from table import refill

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "..", "programs", "generation.py")
TABLE = os.path.join(HERE, "generation.csv")
FIELDS = ["date", "torch", "program", "way", "texts", "tokens", "limit", "said", "verdict", "right"]
MODELS = [
    "t5/512", "t5/32128", "bart/512", "bart/50265", "marian/3000", "whisper/600", "whisper/51865", "gpt2/512", "gpt2/50257",
    "llama/512", "llama/32000", "llama_many_ends/3000", "llama_many_ends/128256",
]  # fmt: skip


def measure(oomph, python, name):
    kind, vocabulary = name.split("/")
    command = [oomph, "dry-run", "--gpu", "rtx-3060", "--no-probe", "--format", "json", "--", python, PROGRAM, kind, "cuda", vocabulary]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    report = json.loads(done.stdout)
    ended = {int(tokens) for one in report["warnings"] for tokens in re.findall(r"generation ended after (\d+) of", one)}
    for way, texts, tokens, limit in re.findall(r"^(\w+) (\d+) (\d+) (\d+)$", done.stderr, re.MULTILINE):
        full, said = tokens == limit, int(tokens) in ended
        yield {
            "date": datetime.date.today().isoformat(), "torch": report["frameworks"]["torch"], "program": name, "way": way,
            "texts": texts, "tokens": tokens, "limit": limit, "said": "ended early" if said and not full else "",
            "verdict": report["verdict"], "right": "yes" if (full or said) and report["verdict"] == "fits" else "no",
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomph")
    parser.add_argument("python")
    parser.add_argument("rows", nargs="*")
    options = parser.parse_args()
    lines = refill(TABLE, FIELDS, "program", MODELS, options.rows, lambda name: measure(options.oomph, options.python, name))
    print("%d of %d reach their limit" % (sum(line["tokens"] == line["limit"] for line in lines), len(lines)))


if __name__ == "__main__":
    main()

"""Reads the grid of settings that `oomph plan` is judged by, on the virtual GPU. See README.md for the command.

usage: grid.py text|images|training FILE.csv [--only WORD]... [--check]

Rows are written as they are read. --only keeps settings whose model or task is WORD. --check reads every setting that
FILE.csv already holds again and says where a figure differs, instead of writing.
"""

import argparse
import csv
import dataclasses
import datetime
import importlib
import sys
import time
import traceback

import torch


def versions(kind):
    """The versions that the figures depend on."""
    import importlib.metadata as metadata

    names = ["transformers", "peft", "bitsandbytes", "accelerate"] if kind == "text" else ["transformers", "diffusers"]
    return {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()} | {n: metadata.version(n) for n in names}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kind", choices=["text", "images", "training"])
    parser.add_argument("file")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--number", action="append", type=int, default=[], help="keep only this setting, counted from 1")
    parser.add_argument("--resume", action="store_true", help="read only what FILE.csv lacks")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    import settings

    kind = importlib.import_module(arguments.kind)
    chosen = [
        s for number, s in enumerate(kind.grid() if hasattr(kind, "grid") else getattr(settings, arguments.kind)(), 1)
        if (not arguments.only or {s.model, s.task} & set(arguments.only)) and (not arguments.number or number in arguments.number)
    ]
    same = versions(arguments.kind) | {"gpu": "h100", "date": datetime.date.today().isoformat()}
    known = {}
    if arguments.check:
        with open(arguments.file, newline="") as file:
            known = {tuple(row[k] for k in vars(chosen[0])): row for row in csv.DictReader(file)}
    output, writer, different = None, None, 0
    if arguments.resume:
        with open(arguments.file, newline="") as file:
            read = {tuple(row[k] for k in vars(chosen[0])) for row in csv.DictReader(file)}
        named = lambda s: tuple(str(int(v) if isinstance(v, bool) else v) for v in vars(s).values())
        chosen = [s for s in chosen if named(s) not in read and named(dataclasses.replace(s, **({"head": s.the_head()} if hasattr(s, "the_head") else {}))) not in read]
    if not arguments.check:
        output = open(arguments.file, "a" if arguments.resume else "w", newline="")
    for number, setting in enumerate(chosen, 1):
        start = time.time()
        try:
            row = kind.run(setting)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            print(f"{number}/{len(chosen)} failed: {setting}", file=sys.stderr)
            print("".join(traceback.format_exception(error, limit=-6))[-1500:], file=sys.stderr, flush=True)
            del error
            continue
        print(f"{number}/{len(chosen)} {time.time() - start:.1f}s {setting.model} {setting.task} {row['peak_allocated']} "
              f"{row['peak_reserved']}", file=sys.stderr, flush=True)
        if arguments.check:
            before = known.get(tuple(str(row[k]) for k in vars(setting)))
            moved = before and {k: (before[k], row[k]) for k in row if before[k] != str(row[k])}
            if moved or not before:
                different += 1
                print(f"differs: {setting}: {moved}")
            continue
        row |= same
        if writer is None:
            writer = csv.DictWriter(output, row, lineterminator="\n")
            if not arguments.resume:
                writer.writeheader()
        writer.writerow(row)
        output.flush()
    if arguments.check:
        print(f"{len(chosen)} settings read again, {different} differ")
        sys.exit(different > 0)


main()

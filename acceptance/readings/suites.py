#!/usr/bin/env python3
"""Suites of programs of JAX, TensorFlow with Keras and ONNX Runtime: whether what oomph says of each is true.

    suites.py OOMPH ENVIRONMENTS [--out FILE] [--quick] [ROW ...]

ENVIRONMENTS is a folder with the virtual environments `jax`, `tf` and `ort`, each made of the file of
acceptance/requirements and, for JAX, of Flax and Optax. A row is one program on one card. For each:

1. `dry-run` says the verdict, the line, the need and the cards.
2. Runs to the end (`--until-exit`) try the smallest card that was named and, for a program that dies, the largest
   capacity that was said not to hold it.
3. `fix` searches for answers; each of the first three is taken as printed (the command, or the patch on a copy of the
   program) and run to its end on the card.
4. `explain` reads the program's own error output.

With `--quick` only one run to the end is made, for the verdict, the line and `explain`.

What the answers must be is written below with each program, from reading the program. The CSV has a line for each row,
with what was wrong in its last column. Rows that are named replace those of a file that is there.
"""

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

from table import refill

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "..", "programs", "frameworks")
TABLE = os.path.join(HERE, "suites.csv")
FIELDS = ["date", "row", "versions", "card", "verdict", "line", "needs_mib", "not_with_mib", "with_these", "smallest_card",
          "on_it", "fixes", "fixes_run_as_printed", "explained", "wrong"]
TO_ITS_END = ["--until-exit", "--no-probe"]
# What `explain` may call the framework of a program.
NAMES = {"jax": ("jax", "flax"), "tf": ("tensorflow", "keras"), "ort": ("onnxruntime", "onnx-runtime")}


@dataclasses.dataclass
class Row:
    """A program, the memory of its card, the statement where it must die ("" where it fits), and an explanation's cause."""

    program: str
    vram: str
    dies_at: str = ""
    causes: tuple = ("full", "too-large")
    fixes: int = 2


ROWS = {
    # The first step, the longest bucket, the evaluation, the sampling, what a loop keeps, and the comparison at the end.
    "jax transformer": Row("jax_transformer.py --batch-size 32 --width 256 --depth 2 --vocabulary 8000", "2GiB",
                           "= train_step(model, first, second, tokens, heads)"),
    "jax scan": Row("jax_scan.py --batch 128 --length 128 --hidden 1024 --steps 3", "1GiB",
                    "= update(params, velocity, tokens)"),
    "jax vit": Row("jax_vit.py", "4GiB", "= step(variables, opt_state, images, labels)"),
    "jax buckets": Row("jax_buckets.py", "3GiB", "= train_step(state, tokens, np.roll(tokens, -1, 1))"),
    "jax evalset": Row("jax_evalset.py", "4GiB", "accuracy = eval_step(state, test_x, test_y)"),
    "jax unet": Row("jax_unet.py", "3GiB", "pictures = sample(params, noise)"),
    "jax history": Row("jax_history.py", "4GiB", "= step_fn(params, x, y)", ("full", "too-large", "leak")),
    "jax distances": Row("jax_distances.py 6000", "6GiB", "differences = features"),
    "jax gaussian": Row("jax_gaussian.py", "4500MiB"),
    "jax vae": Row("jax_vae.py", "2GiB"),
    "keras words": Row("keras_words.py", "4GiB", "model.fit(dataset(args, 8)"),
    "keras evaluation": Row("keras_validation.py --test-batch-size 2048", "3GiB", "model.evaluate("),
    "keras autoencoder": Row("keras_autoencoder.py", "4GiB"),
    "keras convnet": Row("keras_convnet.py --batch-size 256", "4GiB", "model.fit(data"),
    "keras contrast": Row("keras_contrast.py", "3GiB", "distances = tf.norm("),
    "keras gan": Row("keras_gan.py", "2GiB"),
    "tensorflow tape": Row("tensorflow_tape.py", "4GiB", "model(test_images, training=False)"),
    "tensorflow collect": Row("tensorflow_collect.py", "4GiB", "features.append(backbone(images",
                              ("full", "too-large", "leak")),
    "tensorflow sentences": Row("tensorflow_seq2seq.py --batch-size 192", "2GiB", "loss = train_step(tokens)"),
    "tensorflow loop": Row("tensorflow_loop.py --depth 4 --batch-size 16384", "3GiB", "loss = train_step("),
    "onnx embed": Row("onnx_embed.py", "4GiB", "done.append(session.run("),
    "onnx upscale": Row("onnx_upscale.py", "4GiB", "return session.run(None"),
    "onnx gallery": Row("onnx_gallery.py", "4GiB", "session.run_with_iobinding(", ("full", "too-large", "leak")),
    "onnx pipeline": Row("onnx_pipeline.py", "4GiB", "boxes = detector.run(", ("limit",)),
    "onnx segment": Row("onnx_segment.py", "4GiB", "masks = session.run([\"mask\"], {\"scan\": validation})"),
    "onnx generate": Row("onnx_generate.py", "4GiB", "session.run_with_iobinding("),
    "onnx rerank": Row("onnx_rerank.py", "3GiB", "return session.run([\"embeddings\"]"),
    "onnx classify": Row("onnx_classify.py", "2GiB"),
}


class Reading:
    """The commands of one row, and what was wrong."""

    def __init__(self, oomph, environments, name, folder):
        self.oomph, self.row, self.folder = oomph, ROWS[name], folder
        script, *self.options = shlex.split(self.row.program)
        self.kind = {"jax": "jax", "onnx": "ort"}.get(script.split("_")[0], "tf")
        self.python = os.path.join(environments, self.kind, "bin", "python")
        # A copy, on which a patch can be tried; helpers that it imports come with it.
        for file in os.listdir(PROGRAMS):
            if file.endswith(".py"):
                shutil.copy(os.path.join(PROGRAMS, file), folder)
        self.script, self.wrong = script, []
        self.card = ["--gpu", "rtx-3060", "--vram", self.row.vram]

    def check(self, true, text):
        if not true:
            self.wrong.append(text)

    def run(self, *words, program=None):
        """A command of oomph's on the program: its JSON, and what the program wrote to stderr."""
        report = os.path.join(self.folder, "report.json")
        if os.path.exists(report):
            os.remove(report)
        program = program or [self.python, self.script, *self.options]
        command = [self.oomph, *words, "--quiet", "--report", report, "--", *program]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL)
        if not os.path.exists(report):
            sys.exit(f"{shlex.join(command)} gave no report:\n{done.stderr.decode(errors='replace')[-2000:]}")
        with open(report) as file:
            return json.load(file), done.stderr

    def verdict(self, *card, program=None):
        return self.run("dry-run", *TO_ITS_END, *card, program=program)[0]["verdict"]

    def line(self):
        with open(os.path.join(PROGRAMS, self.script)) as file:
            lines = [number for number, text in enumerate(file, 1) if self.row.dies_at in text]
        assert len(lines) == 1, f"{self.row.dies_at!r} is in lines {lines} of {self.script}"
        return lines[0]


def read(oomph, environments, name, quick):
    with tempfile.TemporaryDirectory() as folder:
        reading = Reading(oomph, environments, name, folder)
        report, errors = reading.run("dry-run", *reading.card, *(TO_ITS_END if quick else []))
        versions = " ".join(f"{key} {version}" for key, version in sorted(report["frameworks"].items()))
        line = {"date": datetime.date.today().isoformat(), "row": name, "versions": versions,
                "card": f"rtx-3060 with {reading.row.vram}", "verdict": report["verdict"]}
        expected = "oom" if reading.row.dies_at else "fits"
        reading.check(report["verdict"] == expected, f"the verdict is {report['verdict']}")
        if expected == "fits" and not quick:
            ended = reading.verdict(*reading.card)
            reading.check(ended == "fits", f"run to its end: {ended}")
        if report["verdict"] == "oom":
            line.update(died(reading, report, errors, quick))
        yield dict(line, wrong="; ".join(reading.wrong))


def died(reading, report, errors, quick):
    device = next(device for device in report["devices"] if device["oom"])
    oom, line = device["oom"], {}
    site = oom["site"] or {}
    line["line"] = site.get("line")
    reading.check(site.get("line") == reading.line(), f"it dies at line {reading.line()}")
    line.update(explained(reading, errors, oom))
    if quick:
        return line
    limited = "limit" in reading.row.causes
    need = oom["would_need_bytes"]
    if need:
        found = device["smallest_capacity"] or {}
        less = (found.get("fails_bytes") or need * 97 // 100) // 2**20
        line["needs_mib"], line["not_with_mib"] = round(need / 2**20), less
        line["with_these"] = verdict = reading.verdict("--gpu", "rtx-3060", "--vram", f"{less}MiB")
        reading.check(verdict == "oom", f"{less} MiB hold it")
    reading.check(bool(need) != limited, f"the need is {need}")
    if report["fits_on"]:
        line["smallest_card"] = card = report["smallest"][0]["gpu"]
        line["on_it"] = there = reading.verdict("--gpu", card)
        reading.check(there == "fits", f"{card} does not hold it")
    else:
        reading.check(limited, "no card is named")
    line.update(fixed(reading))
    return line


def explained(reading, errors, oom):
    """Whether `explain` gives the framework, the cause and the size from the program's error output alone."""
    log = os.path.join(reading.folder, "error.log")
    with open(log, "wb") as file:
        file.write(errors)
    done = subprocess.run([reading.oomph, "explain", "--format", "json", log], stdout=subprocess.PIPE)
    failures = json.loads(done.stdout)["failures"]
    reading.check(failures, "explain finds no failure")
    if not failures:
        return {"explained": "nothing"}
    failure = failures[0]
    cause = failure["causes"][0]["cause"] if failure["causes"] else None
    asked = failure["facts"]["requested_bytes"]
    reading.check(failure["framework"] in NAMES[reading.kind], f"explain names {failure['framework']}")
    reading.check(cause in reading.row.causes, f"explain's cause is {cause}")
    # A message may have the size twice, once as "3.05GiB".
    both = asked and oom["requested_bytes"]
    reading.check(not both or abs(asked - oom["requested_bytes"]) < asked / 100,
                  f"explain reads {asked} bytes, the run {oom['requested_bytes']}")
    words = {remedy["id"] for remedy in failure["remedies"]}
    reading.check(words, "explain names nothing to do")
    said = f"{failure['framework']}, {cause}, {asked or 'no'} bytes asked for"
    return {"explained": f"{said}; {' '.join(remedy['id'] for remedy in failure['remedies'])}"}


def fixed(reading):
    """The answers of `fix`, each run as it is printed."""
    report, _ = reading.run("fix", *reading.card)
    found, results = [], []
    for fix in report["fixes"]:
        found.append(" + ".join(fix["remedies"]))
    for fix in report["fixes"][:3]:
        results.append(as_printed(reading, fix))
        reading.check(results[-1] == "fits", f"{' + '.join(fix['remedies'])} as printed: {results[-1]}")
    reading.check(len(found) >= reading.row.fixes, f"{len(found)} fixes")
    return {"fixes": "; ".join(found), "fixes_run_as_printed": "; ".join(results)}


def as_printed(reading, fix):
    with tempfile.TemporaryDirectory() as folder:
        for file in os.listdir(reading.folder):
            if file.endswith(".py"):
                shutil.copy(os.path.join(reading.folder, file), folder)
        text = fix["patch"] or next((part["text"] for part in fix["apply"] if part["text"].startswith("--- ")), None)
        if text:
            done = subprocess.run(["patch", "-p1"], cwd=folder, input=text.encode(), capture_output=True)
            if done.returncode != 0:
                return f"the patch does not apply: {done.stdout.decode(errors='replace').strip()}"
        elif not fix["command"]:
            return "neither a command nor a patch"
        program = shlex.split(fix["command"]) if fix["command"] else [reading.python, reading.script, *reading.options]
        before, reading.folder = reading.folder, folder
        try:
            return reading.verdict(*reading.card, program=["env", *program] if "=" in program[0] else program)
        finally:
            reading.folder = before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("oomph", type=os.path.abspath)
    parser.add_argument("environments", type=os.path.abspath)
    parser.add_argument("--out", default=TABLE)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("rows", nargs="*")
    args = parser.parse_intermixed_args()
    unknown = [row for row in args.rows if row not in ROWS]
    if unknown:
        sys.exit(f"not rows: {', '.join(unknown)}; rows are {', '.join(ROWS)}")
    refill(args.out, FIELDS, "row", ROWS, args.rows, lambda row: read(args.oomph, args.environments, row, args.quick))


if __name__ == "__main__":
    main()

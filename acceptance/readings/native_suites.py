#!/usr/bin/env python3
"""Adds a reading to `native-suites.csv`: what oomph answers for one program that dies, and whether the answers hold.

    native_suites.py OOMPH SUITE NAME LINE [--vram SIZE] [--gpu NAME] [--fix] [--max-time TIME] [--note TEXT] -- PROGRAM...

LINE is the line of the program's own file that dies, as its author knows it. The need is held against real runs of the
whole program (`--until-exit`) with as much memory and with 2 % less, or with the lower end of what it may need, where the
program was searched for on sizes that cards come in. What the program wrote to stderr goes through
`oomph explain`. With `--fix` the first two answers of `oomph fix` are run as printed; of one that its author has to make by
hand stands what the virtual GPU did in its place.
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

from table import append

FIELDS = ["date", "suite", "program", "version", "card", "verdict", "line", "line_right", "needed_mib", "held_at_mib",
          "failed_at_mib", "smallest_card", "smallest_card_held", "first_remark", "explained_as", "explained_cause",
          "explained_figures", "fixes", "fixes_run_as_printed", "note"]
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native-suites.csv")
MIB = 1 << 20


def run(words, folder=None):
    """Runs oomph for its document; gives that and what the program wrote to stderr."""
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", cwd=folder)
    try:
        return json.loads(done.stdout), done.stderr
    except ValueError:
        return {"verdict": "status %d" % done.returncode}, done.stderr


def whole(asked, size, program, folder=None):
    """The verdict of the whole program on a card of `size` bytes, or on the card as it is."""
    limit = ["--vram", "%dMiB" % (size // MIB)] if size else []
    words = [asked.oomph, "dry-run", "--gpu", asked.gpu, *limit, "--until-exit", "--no-probe", "--format", "json", "--",
             *program]
    return run(words, folder)[0]["verdict"]


def explained(asked, text):
    """Framework, cause and figures that `oomph explain` reads from the program's own words."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        log.write("".join(line for line in text.splitlines(True) if not line.startswith("oomph:")))
        log.flush()
        report, _ = run([asked.oomph, "explain", log.name, "--format", "json"])
    failures = report.get("failures") or [{}]
    failure = failures[0]
    causes = failure.get("causes") or [{}]
    figures = {name: value for name, value in (failure.get("facts") or {}).items() if isinstance(value, int)}
    return failure.get("framework"), causes[0].get("id") or causes[0].get("cause"), json.dumps(figures)


def fixed(asked, program):
    """The answers of `oomph fix`, and what the first two did when they were run as printed."""
    time = ["--max-time", asked.max_time] if asked.max_time else []
    words = [asked.oomph, "fix", "--gpu", asked.gpu, *limited(asked), *time, "--format", "json", "--"]
    report, _ = run(words + program)
    rows = report.get("fixes") or []
    found = ["+".join(row["remedies"]) + (" (by hand)" if row.get("by_hand") else "") for row in rows]
    held = []
    for row in rows[:2]:
        what = "by hand, " + row["evidence"][0] if row.get("by_hand") else applied(asked, row, program)
        held.append("%s: %s" % ("; ".join(row["titles"]), what))
    return "; ".join(found) or report["verdict"], "; ".join(held)


def applied(asked, row, program):
    patches = [part["text"] for part in row.get("apply") or [] if part.get("kind") == "patch"]
    # A patch may need other options as well.
    words = shlex.split(row["command"]) if row.get("command") else program
    words = ["env", *words] if "=" in words[0] else words
    if not patches:
        return whole(asked, size_of(asked.vram), words)
    script = next(word for word in program if word.endswith(".py"))
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        relative = os.path.relpath(script)
        (root / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(script, root / relative)
        for patch in patches:
            subprocess.run(["patch", "-s", "-p1"], input=patch, text=True, cwd=folder, check=True)
        words = [str(root / relative) if word == script else word for word in words]
        return whole(asked, size_of(asked.vram), words)


def limited(asked):
    return ["--vram", asked.vram] if asked.vram else []


def size_of(text):
    """Bytes of `4GiB` or `512MiB`; none of the card as it is."""
    return text and int(text[:-3]) * {"GiB": 1 << 30, "MiB": MIB}[text[-3:]]


def main():
    words = sys.argv[1:]
    if "--" not in words:
        sys.exit(__doc__)
    at = words.index("--")
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("oomph", "suite", "name", "line"):
        parser.add_argument(name)
    parser.add_argument("--vram", default="")
    parser.add_argument("--max-time", default="240s")
    parser.add_argument("--gpu", default="rtx-3060")
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--version", default="")
    parser.add_argument("--note", default="")
    asked, program = parser.parse_args(words[:at]), words[at + 1:]

    words = [asked.oomph, "dry-run", "--gpu", asked.gpu, *limited(asked), "--format", "json", "--", *program]
    report, errors = run(words)
    device = (report.get("devices") or [{}])[0]
    oom = device.get("oom") or {}
    site = oom.get("site") or {}
    need = oom.get("would_need_bytes")
    place = "%s:%s" % (os.path.basename(site["file"]), site["line"]) if site else ""
    held = failed = smallest = smallest_held = ""
    if need:
        low = (device.get("needed") or {}).get("low_bytes") or need
        above, below = need + MIB, min(need * 98 // 100, low)
        held = "%d: %s" % (above // MIB, whole(asked, above, program))
        failed = "%d: %s" % (below // MIB, whole(asked, below, program))
    if report.get("fits_on"):
        smallest = report["fits_on"][0]
        count = asked.gpu.partition(":")[2]
        cards = "%s:%s" % (smallest, count) if count else smallest
        again, _ = run([asked.oomph, "dry-run", "--gpu", cards, "--until-exit", "--no-probe", "--format", "json", "--",
                        *program])
        smallest_held = again["verdict"]
    remarks = (report.get("activity") or {}).get("remarks") or [""]
    framework, cause, figures = explained(asked, errors)
    fixes, ran = fixed(asked, program) if asked.fix else ("not asked", "")
    append(TABLE, FIELDS, {
        "date": datetime.date.today().isoformat(), "suite": asked.suite, "program": asked.name, "version": asked.version,
        "card": "%s with %s" % (asked.gpu, asked.vram) if asked.vram else asked.gpu, "verdict": report["verdict"], "line": place,
        "line_right": "yes" if place == asked.line else "no, it is " + asked.line,
        "needed_mib": need // MIB if need else "", "held_at_mib": held, "failed_at_mib": failed, "smallest_card": smallest,
        "smallest_card_held": smallest_held, "first_remark": remarks[0], "explained_as": framework,
        "explained_cause": cause, "explained_figures": figures, "fixes": fixes, "fixes_run_as_printed": ran,
        "note": asked.note,
    })
    sys.stderr.write(errors)


main()

"""A CSV of readings that is made row by row: what is measured anew replaces what an earlier run left."""

import csv
import os


def refill(out, fields, key, everything, wanted, measure):
    """Measures the rows that are named in `wanted`, or `everything`, and writes `out` after each.

    `measure(name)` gives the lines of a row, `key` is the field with its name. Lines of rows that are not measured stay.
    """
    lines = []
    if wanted and os.path.exists(out):
        with open(out, newline="") as file:
            lines = [line for line in csv.DictReader(file) if line[key] not in wanted]
    for name in wanted or everything:
        for line in measure(name):
            print(*line.values(), sep=" | ", flush=True)
            lines.append(line)
        with open(out, "w", newline="") as file:
            writer = csv.DictWriter(file, fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    return lines


def append(out, fields, row):
    """Adds a row to `out`, which is begun where it is missing, and prints it."""
    fresh = not os.path.exists(out)
    with open(out, "a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)
    print(",".join(str(value) for value in row.values()))

"""A made fleet, and what it takes to collect and ask it.

    fleet.py make FOLDER REAL [LOGS SNAPSHOTS]   writes the fleet; REAL holds snapshots and reports of real dry runs
    fleet.py collect OOMPH-FLEET FOLDER DATASET        collects it, killed twice on the way; rate, memory, nothing lost or doubled
    fleet.py ask OOMPH-FLEET DATASET                   the ten usual questions, by DataFusion and by DuckDB, with their times
    fleet.py check FOLDER DATASET                counts and sums of the files themselves, next to those of the dataset
    fleet.py enlarge DATASET TIMES ENLARGED      a dataset with so many copies of each row, under other ids and paths

Rows of readings go to stdout as CSV. `ask`, `check` and `enlarge` need duckdb; nothing here needs a GPU. Logs are varied from the messages in
crates/oomph-explain/tests/public. Snapshots are copies of the real ones with other paths and other days, written into the
bytes of the pickle, so that their structure stays PyTorch's own.
"""

import csv
import gzip
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tarfile
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
MESSAGES = HERE.parent.parent / "crates" / "oomph-explain" / "tests" / "public"
MODELS = ["meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-0.5B", "google/vit-base-16", "gpt2-xl", "stabilityai/sd-2-1", "local/resnet-50"]
DAYS = 28
# A tick of the upper bytes of a time in microseconds, in seconds.
TICK = 2**32 / 1e6


def messages():
    for path in sorted(MESSAGES.glob("*.jsonl")):
        yield from filter(None, (json.loads(line).get("text") for line in path.read_text().splitlines()))


def log(text, at, rng):
    """A log of a run: what it printed before it died, and how it died."""
    model, name = rng.choice(MODELS), f"train_{rng.randrange(40)}.py"
    lines = [f"$ python {name} --model {model} --batch-size {rng.choice([4, 8, 16, 32])}"]
    for step in range(rng.randrange(5, 120)):
        lines.append(f"{at:%Y-%m-%d %H:%M:%S},{rng.randrange(1000):03d} INFO step {step} loss {rng.random():.4f}")
        at += timedelta(seconds=rng.randrange(1, 9))
    lines += ["Traceback (most recent call last):"]
    lines += [f'  File "/home/u{rng.randrange(9)}/{name}", line {rng.randrange(10, 90)}, in main', "    loss = step(batch)"]
    figure = lambda found: f"{float(found[1]) * rng.uniform(0.6, 1.4):.2f} {found[2]}"
    lines.append(re.sub(r"\b(\d+\.\d\d) ([MG]i?B)", figure, text))
    return "\n".join(lines) + "\n"


def moved(pickle, rng, ago):
    """A snapshot with another path and other days, in as many bytes."""
    paths = [path for path in re.findall(rb"/[\w./-]+\.py", pickle) if b"-packages" not in path and b"/lib/python" not in path]
    if paths:
        path = max(sorted(set(paths)), key=paths.count)
        word = b"/home/u%02d/jobs/train_%02d.py" % (rng.randrange(50), rng.randrange(40))
        pickle = pickle.replace(path, word.rjust(len(path), b"/")[-len(path):])
    back = int(ago.total_seconds() / TICK)
    found = re.search(rb"\x8a\x07.{4}(.{2}\x06)", pickle, re.S)
    if found:
        high = int.from_bytes(found[1], "little")
        for tick in (high - 1, high, high + 1):
            old, new = tick.to_bytes(3, "little"), (tick - back).to_bytes(3, "little")
            pickle = re.sub(rb"(\x8a\x07.{4})" + re.escape(old), lambda one: one[1] + new, pickle, flags=re.S)
    return pickle


def damaged(content, rng):
    """What happens to files: they are cut, empty, overwritten, or were never what they are called."""
    kind = rng.randrange(6)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    if kind == 1:
        return b""
    if kind == 2:
        place = rng.randrange(len(content))
        return content[:place] + rng.randbytes(64) + content[place + 64 :]
    if kind == 3:
        return b"\x80\x04cposix\nsystem\n(X\x04\x00\x00\x00truetR."
    if kind == 4:
        return b'{"segments":' + b"[" * 100_000
    return b"\x7fELF" + rng.randbytes(4096)


def make(folder, real, logs=10_000, snapshots=2_000):
    rng, now = random.Random(1), datetime.now(timezone.utc).replace(microsecond=0)
    texts = list(messages())
    write = lambda path, content, at: (path.parent.mkdir(parents=True, exist_ok=True), path.write_bytes(content), os.utime(path, (at.timestamp(),) * 2))
    ago = lambda: timedelta(seconds=rng.randrange(3600, DAYS * 86400))
    archive = None
    for number in range(logs):
        at = now - ago()
        content = log(texts[number % len(texts)], at, rng).encode()
        if number % 50 == 7:
            content = damaged(content, rng)
        if number % 5 == 0:
            # Every fifth log is in one of ten tar files.
            if number % (logs // 10) == 0:
                if archive:
                    archive.close()
                archive = tarfile.open(folder / f"logs-{number:05}.tar.gz", "w:gz", compresslevel=1)
            member = tarfile.TarInfo(f"job-{number}/train.log")
            member.size, member.mtime = len(content), int(at.timestamp())
            archive.addfile(member, io.BytesIO(content))
            continue
        if number % 11 == 3:
            write(folder / f"logs/{number % 100:02}/{number}.log.gz", gzip.compress(content, 1), at)
        else:
            write(folder / f"logs/{number % 100:02}/{number}.log", content, at)
    archive.close()
    originals = [path.read_bytes() for path in sorted(real.glob("*.pickle"))]
    for number in range(snapshots):
        back = ago()
        content = moved(originals[number % len(originals)], rng, back)
        if number % 40 == 11:
            content = damaged(content, rng)
        write(folder / f"snapshots/{number % 50:02}/{number}.pickle", content, now - back)
    reports = [json.loads(path.read_text()) for path in sorted(real.glob("*.json")) if not path.name.endswith(".names.json")]
    for number in range(snapshots // 4):
        report, back = json.loads(json.dumps(rng.choice(reports))), ago()
        report["steps"], report["elapsed_seconds"] = number, rng.random() * 100
        for device in report["devices"]:
            for name in ("process_bytes", "reserved_bytes", "allocated_bytes"):
                if device["peak"][name]:
                    device["peak"][name] = int(device["peak"][name] * rng.uniform(0.9, 1.1))
        write(folder / f"reports/{number}.json", json.dumps(report).encode(), now - back)
    for host in range(20):
        lines = []
        for run in range(20):
            at, name = now - ago(), f"{host}-{run}"
            line = lambda **event: lines.append(json.dumps({"schema": "oomph.journal/1", "run": name, "at": f"{at:%Y-%m-%dT%H:%M:%S}.000Z", **event}))
            line(event="start", command=["python", "train.py", "--model", rng.choice(MODELS)], gpu="rtx-4090", rehearsal=False, free_bytes=24 << 30)
            for attempt in range(1, rng.randrange(2, 5)):
                line(event="attempt", number=attempt, remedies=["gradient-checkpointing"][: attempt - 1], checkpoint=None, step=None, repeated_steps=5 * attempt, predicted_peak_bytes=20 << 30)
                death = dict(requested_bytes=1 << 28, reserved_bytes=22 << 30, phase="backward", step=9, file="train.py", line=30 + run, rank=None, recording=None)
                line(event="end", number=attempt, exit_status=int(attempt == 1), seconds=float(rng.randrange(60, 9000)), reserved_peak_bytes=21 << 30, steps=100, resumed_at_step=None, effective_batch=32, signs=[], out_of_memory=death if attempt == 1 else None)
        write(folder / f"journals/{host}.jsonl", ("\n".join(lines) + "\n").encode(), now - timedelta(days=2))
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    print(f"{len(sizes)} files, {sum(sizes) / 1e6:.0f} MB", file=sys.stderr)


def asked(oomph, sql, dataset):
    out = subprocess.run([oomph, "query", sql, dataset, "--format", "json"], check=True, capture_output=True).stdout
    return json.loads(out)["rows"]


def counts(oomph, dataset):
    tables = ("files", "bad_files", "failures", "facts", "owners", "causes", "what_if", "stacks", "reports", "attempts")
    sql = "SELECT " + ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in tables)
    return asked(oomph, sql, dataset)[0]


def collected(oomph, sources, dataset, options, kill_after=None):
    """One collect: seconds, peak of memory in bytes, the summary (none where it was killed)."""
    began = time.monotonic()
    command = [oomph, "-q", "collect", *sources, "--into", dataset, "--format", "json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    out = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    return time.monotonic() - began, usage.ru_maxrss * 1024, json.loads(out) if out else None


def collect(oomph, folder, dataset, *options):
    writer = csv.writer(sys.stdout)
    writer.writerow(["what", "files", "mb", "seconds", "files_per_second", "mb_per_second", "peak_mib", "bad"])

    def row(what, seconds, peak, summary, mb):
        files = summary["files"] + summary["bad"]
        writer.writerow([what, files, round(mb), round(seconds, 1), round(files / seconds), round(mb / seconds), peak >> 20, summary["bad"]])
        sys.stdout.flush()

    size = lambda paths: sum(path.stat().st_size for root in paths for path in Path(root).rglob("*") if path.is_file()) / 1e6
    for what in ("logs", "snapshots"):
        seconds, peak, summary = collected(oomph, [f"{folder}/{what}"], f"{dataset}-{what}", options)
        row(what, seconds, peak, summary, size([f"{folder}/{what}"]))
    seconds, peak, whole = collected(oomph, [folder], f"{dataset}-whole", options)
    row("everything", seconds, peak, whole, size([folder]))
    # Small batches, so that each kill falls between some that are committed and some that are not.
    rng, small = random.Random(2), [*options, "--batch-files", "500"]
    for kill in range(2):
        collected(oomph, [folder], dataset, small, kill_after=seconds * rng.uniform(0.3, 0.4))
        print(f"# batches that are committed after kill {kill + 1}: {len(list(Path(dataset, '_collected').glob('*.json')))}")
    again, peak, summary = collected(oomph, [folder], dataset, small)
    row("after two kills", again, peak, summary, size([folder]))
    nothing, peak, summary = collected(oomph, [folder], dataset, options)
    row("once more", nothing, peak, summary, 0)
    print(f"# rows: {counts(oomph, dataset)}")
    for table in sorted(path.name for path in Path(dataset).iterdir() if (path / "v=1").is_dir()):
        whole, killed = (rows_of(oomph, table, place) for place in (f"{dataset}-whole", dataset))
        print(f"# {table}: {whole.total()} and {killed.total()} rows, {(whole - killed).total() + (killed - whole).total()} of them differ")


# Of two files of the same content the one that is read first gives its name and time, and which that is differs.
BY_CHANCE = {"path", "day", "written_at", "happened_at", "began_at"}


def rows_of(oomph, table, dataset):
    """All rows of a table, each with how often it is there."""
    rows = asked(oomph, f"SELECT * FROM {table}", dataset)
    return Counter(json.dumps({name: value for name, value in row.items() if name not in BY_CHANCE}) for row in rows)


def plain(value):
    return value.isoformat() if hasattr(value, "isoformat") else int(value) if isinstance(value, int) else value


def duck(dataset):
    import duckdb

    connection = duckdb.connect()
    for table in sorted(path.name for path in Path(dataset).iterdir() if (path / "v=1").is_dir()):
        files = f"{dataset}/{table}/v=1/**/*.parquet"
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', hive_partitioning = true, union_by_name = true)")
    return connection


def ask(oomph, dataset):
    writer = csv.writer(sys.stdout)
    writer.writerow(["question", "rows", "datafusion_seconds", "duckdb_seconds", "equal"])
    connection = duck(dataset)
    listed = subprocess.run([oomph, "query", "--list"], check=True, capture_output=True, text=True).stdout
    for name in (line.split()[0] for line in listed.splitlines()):
        times = []
        for _ in range(3):
            began = time.monotonic()
            rows = [list(row.values()) for row in asked(oomph, name, dataset)]
            times.append(time.monotonic() - began)
        sql = subprocess.run([oomph, "query", "--list", name], check=True, capture_output=True, text=True).stdout
        duck_times = []
        for _ in range(3):
            began = time.monotonic()
            others = connection.execute(sql).fetchall()
            duck_times.append(time.monotonic() - began)
        others = [[plain(value) for value in row] for row in others]
        writer.writerow([name, len(rows), f"{min(times):.3f}", f"{min(duck_times):.3f}", rows == others])
        if rows != others:
            differ = [(a, b) for a, b in zip(rows, others) if a != b]
            print(f"# {name}: {len(rows)} and {len(others)} rows; first difference {differ[:1]}")


def check(folder, dataset):
    """What the files say, read without oomph, and what the dataset says."""
    connection = duck(dataset)
    one = lambda sql: connection.execute(sql).fetchone()
    digest = lambda content: hashlib.sha256(content).hexdigest()[:32]
    loose = [path for path in Path(folder).rglob("*") if path.is_file() and not path.name.endswith(".tar.gz")]
    contents = {digest(path.read_bytes()) for path in loose}
    for path in Path(folder).glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            contents |= {digest(archive.extractfile(member).read()) for member in archive}
    known = {row[0] for row in connection.execute("SELECT file_id FROM files UNION ALL SELECT file_id FROM bad_files").fetchall()}
    print("contents: in the files, in the dataset, in one of them only:", len(contents), len(known), len(contents ^ known))
    reports = {text: json.loads(text) for text in (path.read_text() for path in Path(folder, "reports").glob("*.json"))}
    devices = [device for report in reports.values() for device in report["devices"]]
    owners = sum(owner["bytes"] for device in devices if device.get("whose") for owner in device["whose"]["owners"])
    print("reports, bytes reserved:", (len(devices), sum(device["peak"]["reserved_bytes"] or 0 for device in devices)),
        one("SELECT count(*), sum(reserved_bytes) FROM reports WHERE source = 'dry-run'"))
    print("failures of dry runs:", sum(bool(device["oom"]) + len(device["caught_ooms"]) for device in devices),
        one("SELECT count(*) FROM failures WHERE source = 'dry-run'"))
    print("bytes of owners:", owners, one("SELECT sum(bytes) FROM owners WHERE source = 'dry-run'"))
    events = [json.loads(line) for path in Path(folder, "journals").glob("*") for line in path.read_text().splitlines()]
    ends = [event for event in events if event["event"] == "end"]
    print("attempts, deaths, seconds:", (sum(event["event"] == "attempt" for event in events), sum(bool(end["out_of_memory"]) for end in ends), sum(end["seconds"] for end in ends)),
        one("SELECT count(*), sum(CASE WHEN out_of_memory THEN 1 ELSE 0 END), sum(seconds) FROM attempts"))


def enlarge(dataset, times, enlarged):
    connection = duck(dataset)
    for table in sorted(path.name for path in Path(dataset).iterdir() if (path / "v=1").is_dir()):
        columns = {row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()}
        out = Path(enlarged, table, "v=1")
        out.mkdir(parents=True)
        if "day" not in columns:
            connection.execute(f"COPY {table} TO '{out}/catalogue.parquet' (FORMAT parquet)")
            continue
        changed = {"id": "md5(id || n)", "file_id": "md5(file_id || n)", "path": "path || n", "site_file": "site_file || (n % 100)"}
        replace = ", ".join(f"{sql} AS {name}" for name, sql in changed.items() if name in columns)
        connection.execute(f"COPY (SELECT rows.* REPLACE ({replace}) FROM {table} AS rows CROSS JOIN range({times}) AS copies(n))"
            f" TO '{out}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day))")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", folder, real, *numbers]:
            Path(folder).mkdir(parents=True, exist_ok=True)
            make(Path(folder), Path(real), *map(int, numbers))
        case ["collect", oomph, folder, dataset, *options]:
            collect(oomph, folder, dataset, *options)
        case ["ask", oomph, dataset]:
            ask(oomph, dataset)
        case ["check", folder, dataset]:
            check(folder, dataset)
        case ["enlarge", dataset, times, enlarged]:
            enlarge(dataset, int(times), enlarged)
        case _:
            sys.exit(__doc__)

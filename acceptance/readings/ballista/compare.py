"""The ten usual questions on Ballista: a scheduler and two executors on this machine, compared with the embedded engine.

    compare.py OOMPH-FLEET DATASET BIN CLIENT

BIN holds `ballista-scheduler` and `ballista-executor`, of the release whose DataFusion is that of crates/oomph-fleet:

    for part in scheduler executor; do cargo install ballista-$part --version 55.0.0 --root BALLISTA; done

and BIN is BALLISTA/bin. CLIENT is the program of this folder (`cargo build --release --manifest-path .../ballista/Cargo.toml`).
The executors read the dataset by its path, so that it has to be where each of them sees it: on one
machine a folder, on several a shared file system or an object store. Rows go to stdout as CSV.
"""

import csv
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEDULER = 50050
EXECUTORS = ((50061, 50062, 50063), (50071, 50072, 50073))


def wait(port):
    for _ in range(300):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"nobody listens at port {port}")


def tables(dataset):
    """The dataset's tables in SQL. The day is text to a table whose columns are found in its files."""
    for path in sorted(Path(dataset).iterdir()):
        if not (path / "v=1").is_dir():
            continue
        by = "" if path.name == "gpus" else "PARTITIONED BY (day) "
        yield f"CREATE EXTERNAL TABLE raw_{path.name} STORED AS PARQUET {by}LOCATION '{path / 'v=1'}/';"
        day = "" if path.name == "gpus" else " EXCEPT (day), CAST(day AS DATE) AS day"
        yield f"CREATE VIEW {path.name} AS SELECT *{day} FROM raw_{path.name};"


def rows(values):
    """Rows in which a whole number is a whole number, whichever way it was written."""
    return [[int(value) if isinstance(value, float) and value.is_integer() else value for value in row.values()] for row in values]


def main(oomph, dataset, bin, client):
    dataset = str(Path(dataset).resolve())
    started = []
    with tempfile.TemporaryDirectory() as work:
        start = lambda *command: started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        try:
            start(f"{bin}/ballista-scheduler", "--bind-host", "127.0.0.1", "--bind-port", str(SCHEDULER))
            wait(SCHEDULER)
            for port, grpc, health in EXECUTORS:
                start(
                    f"{bin}/ballista-executor", "--bind-host", "127.0.0.1", "--external-host", "127.0.0.1", "--scheduler-host", "127.0.0.1",
                    "--scheduler-port", str(SCHEDULER), "--bind-port", str(port), "--bind-grpc-port", str(grpc),
                    "--bind-health-port", str(health), "--vcores", "1", "--work-dir", f"{work}/{port}",
                )
                wait(port)
            writer = csv.writer(sys.stdout)
            writer.writerow(["question", "rows", "ballista_seconds", "datafusion_seconds", "equal"])
            listed = subprocess.run([oomph, "query", "--list"], check=True, capture_output=True, text=True).stdout
            for name in (line.split()[0] for line in listed.splitlines()):
                sql = subprocess.run([oomph, "query", "--list", name], check=True, capture_output=True, text=True).stdout
                script = Path(work) / f"{name}.sql"
                script.write_text("\n".join(tables(dataset)) + "\n" + sql + ";\n")
                began = time.monotonic()
                command = [client, f"df://127.0.0.1:{SCHEDULER}", script]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                theirs = time.monotonic() - began
                there = rows(json.loads(out))
                began = time.monotonic()
                own = subprocess.run([oomph, "query", name, dataset, "--format", "json"], check=True, capture_output=True).stdout
                ours = time.monotonic() - began
                here = rows(json.loads(own)["rows"])
                writer.writerow([name, len(here), f"{theirs:.2f}", f"{ours:.2f}", there == here])
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])

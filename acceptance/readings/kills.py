"""Kills dry runs at random moments and looks at what is left: `kills.py OOMPH KILLS OUT.csv [PYTHON]`.

Each row is a phase: the runtime's unpacking into a fresh cache, the making of an environment of `--with` (fetched from PyPI), and
the start, the middle and the end of a run on a cache that is there; with a PYTHON that has torch, also a run whose smallest card
is searched for with the fork server. A kill takes the launcher alone (the watchdog cleans up) or the launcher with its watchdog (the next run does).
After each, an untouched run must answer as before, no process of the killed run may live, and no run folder may be left.
Rows "N at once" start N runs together on one fresh cache, without kills.
"""

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARK = "OOMPH_KILLS_MARK"
RUN_FOLDER = re.compile("oomph-[0-9]+-[0-9a-f]{16}")
PROGRAM = "import ctypes, time; d = ctypes.CDLL('libcuda.so.1'); d.cuInit(0); c = ctypes.c_void_p(); d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); d.cuCtxSetCurrent(c); d.cuMemAlloc_v2(ctypes.byref(c), ctypes.c_size_t(1 << 30)); time.sleep(0.15); print('done')"


# What an environment is made of; a program that imports it runs only where the environment is whole.
PACKAGE = "docutils"

# It needs 1 to 2 GB, so that the search makes several runs.
SEARCHED = """import torch
a = torch.nn.Linear(8192, 8192).cuda()
optimizer = torch.optim.Adam(a.parameters())
for _ in range(3):
    a(torch.zeros(64, 8192, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def command(oomph, python=None):
    if python == PACKAGE:
        imports = "import docutils.core; docutils.core.publish_string('*a*', writer='html'); "
        words = [oomph, "dry-run", "--gpu", "rtx-3060", "--with", PACKAGE, "--no-probe", "--until-exit", "--format", "json"]
        return words + ["--", "sh", "-c", 'exec python -c "%s"' % (imports + PROGRAM)]
    if python:
        return [oomph, "dry-run", "--gpu", "rtx-3060", "--format", "json", "--", python, "searched.py"]
    # The shell keeps oomph from asking this Python for a torch, which the program does not need.
    line = "exec '%s' -c \"%s\"" % (sys.executable, PROGRAM)
    return [oomph, "dry-run", "--gpu", "rtx-3060", "--no-probe", "--until-exit", "--format", "json", "--", "sh", "-c", line]


def environment(cache, folder, mark):
    return dict(os.environ, OOMPH_CACHE_DIR=str(cache), TMPDIR=str(folder), XDG_RUNTIME_DIR=str(folder), **{MARK: mark})


def start(oomph, cache, folder, mark="", python=None):
    return subprocess.Popen(
        command(oomph, python), env=environment(cache, folder, mark), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, cwd=folder,
    )


def verdict(process):
    out = process.communicate()[0]
    try:
        return process.returncode, json.loads(out)["verdict"]
    except (ValueError, KeyError):
        return process.returncode, None


def alive(mark):
    """The processes that carry this run's mark, but for zombies."""
    wanted = ("%s=%s" % (MARK, mark)).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def left(folder):
    """Run folders, wherever they may lie."""
    places = [Path(folder), Path("/dev/shm")]
    mine = os.geteuid()
    found = [path for place in places for path in place.glob("oomph-*") if RUN_FOLDER.fullmatch(path.name)]
    return [str(path) for path in found if path.is_dir() and path.stat().st_uid == mine]


def kill(process, mark, watchdog_too):
    """Kill the launcher, or all processes of the run that are oomph itself."""
    victims = [process.pid]
    if watchdog_too:
        for pid in alive(mark):
            try:
                if os.path.basename(os.readlink("/proc/%d/exe" % pid)).startswith("oomph"):
                    victims.append(pid)
            except OSError:
                pass
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.communicate()


def main():
    oomph, kills, out = os.path.abspath(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    searching = sys.argv[4] if len(sys.argv) > 4 else None
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        cache, folder = Path(top) / "cache", Path(top) / "work"
        folder.mkdir(mode=0o700)
        expected = verdict(start(oomph, cache, folder))
        begun = time.monotonic()
        assert verdict(start(oomph, cache, folder)) == expected and expected[0] == 0, expected
        whole = time.monotonic() - begun
        before = set(left(folder))
        print("a run: %.2f s, %s" % (whole, expected), flush=True)
        phases = [("unpacking", 0, 0.4), ("start", 0, 0.3), ("run", 0.3, 0.8), ("report", 0.65, 1.0)]
        assert verdict(start(oomph, cache, folder, python=PACKAGE)) == expected
        shutil.rmtree(cache / "environments")
        begun = time.monotonic()
        assert verdict(start(oomph, cache, folder, python=PACKAGE)) == expected
        phases.insert(1, ("environment", 0, (time.monotonic() - begun) / whole))
        if searching:
            (folder / "searched.py").write_text(SEARCHED)
            begun = time.monotonic()
            found = verdict(start(oomph, cache, folder, python=searching))
            assert found == (0, "fits"), found
            phases.append(("search", 0, (time.monotonic() - begun) / whole))
        for phase, low, high in phases:
            python = {"search": searching, "environment": PACKAGE}.get(phase)
            again = PACKAGE if phase == "environment" else None
            for watchdog_too in (False, True):
                row = dict(phase=phase, killed="launcher and watchdog" if watchdog_too else "launcher", kills=0, ended_before=0,
                           next_run_right=0, processes_left=0, swept_later=0, folders_left=0)
                for number in range(kills):
                    if phase == "unpacking":
                        shutil.rmtree(cache, ignore_errors=True)
                    if phase == "environment":
                        shutil.rmtree(cache / "environments", ignore_errors=True)
                    mark = "%s-%s-%d" % (phase, watchdog_too, number)
                    process = start(oomph, cache, folder, mark, python)
                    time.sleep(random.uniform(low, high) * whole)
                    row["kills" if process.poll() is None else "ended_before"] += 1
                    kill(process, mark, watchdog_too)
                    row["next_run_right"] += verdict(start(oomph, cache, folder, python=again)) == expected
                    # A watchdog gives the program some time to end; without one the program ends by itself.
                    deadline = time.monotonic() + 10
                    while (alive(mark) or set(left(folder)) - before) and time.monotonic() < deadline and not watchdog_too:
                        time.sleep(0.05)
                    time.sleep(0.3 if watchdog_too else 0)
                    row["processes_left"] += bool(alive(mark))
                    # A run leaves young folders alone, which may be another's that is about to lock them: this is later.
                    young = set(left(folder)) - before
                    row["swept_later"] += bool(young)
                    for path in young:
                        os.utime(path, (0, 0))
                    if young:
                        start(oomph, cache, folder).communicate()
                    row["folders_left"] += bool(set(left(folder)) - before)
                rows.append(row)
                print(row, flush=True)
        for count in (2, 4):
            row = dict(phase="%d at once" % count, killed="none", kills=0, ended_before=0, next_run_right=0, processes_left=0,
                       swept_later=0, folders_left=0)
            for _ in range(max(1, kills // 2)):
                shutil.rmtree(cache, ignore_errors=True)
                together = [start(oomph, cache, folder) for _ in range(count)]
                row["ended_before"] += count
                row["next_run_right"] += sum(verdict(process) == expected for process in together)
                row["folders_left"] += bool(set(left(folder)) - before)
            rows.append(row)
            print(row, flush=True)
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

"""The ways of changing files of `acceptance/programs/harm`: programs in C, C++, Rust and Node, each with a list of ways.

A program is made in a temporary folder, where its compiler is there. `OUTSIDE` collects what a way reached that is not a file of
its own, such as a disk.
"""

import os
import shutil
import subprocess
import tempfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "harm")
OUTSIDE = []

COMPILED = {
    "ways.c": ["cc", "-O1", "-w", "-pthread"],
    "ways.cpp": ["c++", "-std=c++20", "-pthread"],
    "ways.rs": ["rustc", "--edition", "2024"],
}

LAST = "leave_a_daemon_that_waits"
"""The function that runs last: it takes effect when the program has ended."""


def ways():
    """A function for each way, and the last one apart. Each is called with a file and a folder."""
    made = tempfile.mkdtemp()
    found, last = [], None
    for source, compiler in COMPILED.items():
        program = os.path.join(made, source.replace(".", "-"))
        if shutil.which(compiler[0]):
            subprocess.run([*compiler, "-o", program, os.path.join(HERE, source)], check=True, cwd=made)
            found += _listed(source, [program])
    if shutil.which("node"):
        found += _listed("ways.mjs", ["node", os.path.join(HERE, "ways.mjs")])
    last = next((way for way in found if way.__name__.endswith(LAST)), None)
    return [way for way in found if way is not last], last


def _listed(source, words):
    names = subprocess.run([*words, "list"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return [_way(source, words, name) for name in names]


def _way(source, words, name):
    def run(file, directory):
        done = subprocess.run(
            [*words, name, file, directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            encoding="utf-8", errors="replace", timeout=60,
        )
        OUTSIDE.extend(line for line in done.stdout.splitlines() if line.startswith("harm: "))
        if done.returncode != 0:
            raise OSError("status %d: %s" % (done.returncode, done.stdout[-300:]))

    run.__name__ = "%s:%s" % (source, name)
    return run

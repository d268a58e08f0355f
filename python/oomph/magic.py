"""`%load_ext oomph` and `%%dry_run`: runs a cell of a notebook on a virtual card, in a process of its own.

The kernel runs nothing of the cell and takes no GPU: the cells that it ran before, and this one, are run from the start by
`oomph dry-run -- python -m oomph.cells`.
"""

from __future__ import annotations

import ast
import atexit
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from oomph import installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USAGE = """%%dry_run [--needed] [OPTIONS]: run this cell, after those that were run before it, on a virtual card.

    %%dry_run --gpu rtx-3060
    %%dry_run --needed --gpu t4 --no-probe

--needed leaves out earlier cells that this one does not need; what they hold on the card is then missing from the answer.
OPTIONS are those of `oomph dry-run`. The answer is in the variable `dry_run_report` afterwards."""

# Lines that prepare the kernel rather than the program. A dry run has the packages that are installed.
_SETUP = re.compile(r"^\s*[!%]\s*(pip|conda|mamba|uv)\b|^\s*%(load_ext|reload_ext|autoreload)\b")
_OURS = re.compile(r"^\s*%{1,2}dry_run\b|\bdry_run_report\b")


def register(shell: Any) -> None:
    """Give a shell the magic."""
    failed = set()

    def ended(result):
        if not result.success:
            failed.add(result.execution_count)

    shell.events.register("post_run_cell", ended)
    shell.register_magic_function(lambda line, cell=None: dry_run(shell, failed, line, cell), "line_cell", "dry_run")


def dry_run(shell: Any, failed: set[int], line: str, cell: str | None) -> None:
    """Run a cell, with those before it, on a virtual card, and show the answer."""
    words = shlex.split(line)
    if cell is None or "--help" in words or "-h" in words:
        print(USAGE)
        return
    needed = "--needed" in words
    options = [word for word in words if word != "--needed"]
    program = installed.find()
    if program is None:
        print("error: the program oomph was not found; install it with `pip install oomph`", file=sys.stderr)
        return
    # The last one is the present cell. IPython's own count is that of the next one in some versions.
    history = list(shell.history_manager.input_hist_raw)
    before = earlier_cells(history[:-1], failed)
    if needed:
        before = [before[place] for place in needed_by(cell, [one["source"] for one in before])]
    number = len(history) - 1
    cells = [*before, {"number": number, "source": cell}]
    # The commands that oomph names for what to do next hold as long as the kernel.
    path, report = (os.path.join(folder(), f"{name}-{number}.json") for name in ("cells", "report"))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cells, file)
    run([program, "dry-run", *options, "--report", report, "--", sys.executable, "-m", "oomph.cells", path])
    try:
        with open(report, encoding="utf-8") as file:
            shell.user_ns["dry_run_report"] = json.load(file)
    except (OSError, ValueError):
        shell.user_ns.pop("dry_run_report", None)


@functools.cache
def folder() -> str:
    """A folder for the files of this kernel, removed with it."""
    path = tempfile.mkdtemp(prefix="oomph-cells-")
    atexit.register(shutil.rmtree, path, True)
    return path


def run(command: list[str]) -> None:
    """Run a command and show what it writes, as it comes. An interrupt of the kernel is one of the command."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1", NO_COLOR="1", COLUMNS="100")
    environment.setdefault("LC_ALL", "C.UTF-8")
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        while True:
            try:
                for text in process.stdout or ():
                    print(text, end="")
                break
            except KeyboardInterrupt:
                # oomph answers with what it has seen until then.
                process.send_signal(signal.SIGINT)
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def earlier_cells(history: list[str], failed: set[int]) -> list[dict[str, Any]]:
    """The cells of a kernel's history, which begins with none, without what only prepares the kernel and what failed."""
    cells = []
    for number, source in enumerate(history):
        if number == 0 or number in failed:
            continue
        source = program_of(source)
        if source.strip():
            cells.append({"number": number, "source": source})
    return cells


def program_of(source: str) -> str:
    """A cell without the lines that prepare the kernel; nothing of one that was a dry run or looks at the answer of one."""
    if _OURS.search(source):
        return ""
    return "\n".join(line for line in source.split("\n") if not _SETUP.match(line))


def needed_by(cell: str, before: list[str]) -> list[int]:
    """Which of the cells before (by place, in order) this one needs, by the names that they use and change."""
    wanted = _Names.of(cell)
    if wanted is None:
        return list(range(len(before)))
    used, kept = set(wanted.used), []
    for place in range(len(before) - 1, -1, -1):
        names = _Names.of(before[place])
        # What cannot be read may do anything.
        if names is None or names.opens or names.changed & used:
            kept.append(place)
            used |= names.used if names else set()
    return kept[::-1]


class _Names(ast.NodeVisitor):
    """The names that a cell uses, and those that it binds or whose objects it may change."""

    def __init__(self):
        self.used, self.changed, self.opens = set(), set(), False

    @classmethod
    def of(cls, source):
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return None
        names = cls()
        names.visit(tree)
        return names

    def visit_Name(self, node):
        (self.used if isinstance(node.ctx, ast.Load) else self.changed).add(node.id)

    def visit_Import(self, node):
        for alias in node.names:
            self.changed.add((alias.asname or alias.name).split(".")[0])

    def visit_ImportFrom(self, node):
        self.opens = self.opens or any(alias.name == "*" for alias in node.names)
        self.visit_Import(node)

    def _define(self, node):
        self.changed.add(node.name)
        self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _define

    def visit_Call(self, node):
        # A method may change its object, and a function what it is given.
        for part in [node.func, *node.args, *(keyword.value for keyword in node.keywords)]:
            base = _base(part)
            if base is not None and not (part is node.func and isinstance(part, ast.Name)):
                self.changed.add(base)
        self.generic_visit(node)

    def visit_Attribute(self, node):
        self._place(node)

    def visit_Subscript(self, node):
        self._place(node)

    def _place(self, node):
        base = _base(node)
        if base is not None and not isinstance(node.ctx, ast.Load):
            self.changed.add(base)
        self.generic_visit(node)


def _base(node):
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None

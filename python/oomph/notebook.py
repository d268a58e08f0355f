"""Finds which cell of a notebook a line is in, and stops a run there.

When a run is stopped, the kernel stays, and what is left of the cells is passed over.

A kernel that went away would be an error to whatever runs the notebook (`jupyter nbconvert --execute`, papermill), and
the run would count as failed.
"""

from __future__ import annotations

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_CELL = re.compile(r"<ipython-input-(\d+)-|/ipykernel_\d+/\d+\.py$")


def cell_of(filename: str) -> int | None:
    """The number of the cell that code of this file was typed into, as in `In [5]`; None for a file that is not a cell.

    IPython itself knows it; an old IPython has it in the name of the file, and ipykernel a temporary file for each cell.
    """
    found = _CELL.search(filename)
    if found is None:
        return None
    shell: Any = sys.modules.get("IPython.core.interactiveshell")
    try:
        compiler = shell.InteractiveShell.instance().compile if shell.InteractiveShell.initialized() else None
        number = getattr(compiler, "_filename_map", {}).get(filename)
    except Exception:
        # IPython's inner names change with its versions.
        number = None
    if number is None and found.group(1):
        number = found.group(1)
    return int(number) if number else None


def line_of(filename: str, line: int) -> str | None:
    """The text of a line of a cell, which is in no file; None where it is not known."""
    import linecache

    return linecache.getline(filename, line).strip() or None


_LARGEST = 64 << 20
"""A notebook with more bytes is not read."""
_MOST_PARENTS = 16
_notebooks: list[tuple[str, list[str]]] | None = None


def file_of(filename: str) -> str | None:
    """The notebook that a cell's file belongs to, by its path; None where it is not known.

    A kernel does not know which notebook it runs, but what started it (`jupyter nbconvert --execute`, papermill, a server)
    was given the notebook's name. Of several notebooks it is the one that holds the cell.
    """
    global _notebooks
    number = cell_of(filename)
    if number is None:
        return None
    if _notebooks is None:
        _notebooks = _named_notebooks()
    source = _source_of(number)
    for path, cells in _notebooks:
        if source is not None and source in cells:
            return path
    # A tool may have put a cell of its own into it.
    return _notebooks[0][0] if len(_notebooks) == 1 else None


def cells() -> list[dict[str, Any]]:
    """The files that the kernel has for its cells, with the cells' notebook and number."""
    shell: Any = sys.modules.get("IPython.core.interactiveshell")
    if shell is None or not shell.InteractiveShell.initialized():
        return []
    files = list(getattr(shell.InteractiveShell.instance().compile, "_filename_map", ()))
    return [{"file": file, "notebook": file_of(file), "cell": cell_of(file)} for file in files if cell_of(file)]


def _source_of(number):
    """What was typed into a cell."""
    shell: Any = sys.modules["IPython.core.interactiveshell"]
    try:
        return shell.InteractiveShell.instance().history_manager.input_hist_raw[number].strip()
    except Exception:
        # IPython's inner names change with its versions, and a shell may keep no history.
        return None


def _named_notebooks():
    """The notebooks that this process and those that started it were given, with the sources of their cells."""
    named = [os.path.abspath(word) for word in sys.argv if word.endswith(".ipynb")]
    session = os.environ.get("JPY_SESSION_NAME", "")
    if session.endswith(".ipynb"):
        named.append(session)
    pid = os.getppid()
    for _ in range(_MOST_PARENTS):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")]
            folder = os.readlink("/proc/%d/cwd" % pid)
            with open("/proc/%d/stat" % pid) as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        named += [os.path.join(folder, word) for word in words if word.endswith(".ipynb")]
    found = [(path, _sources(path)) for path in dict.fromkeys(named)]
    return [(path, sources) for path, sources in found if sources is not None]


def _sources(path):
    """The sources of a notebook's code cells; None for what is not a notebook."""
    try:
        if os.path.getsize(path) > _LARGEST:
            return None
        with open(path, encoding="utf-8") as file:
            made = json.load(file)
        sources = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
        return ["".join(source).strip() for source in sources]
    except (OSError, ValueError, TypeError, KeyError):
        return None


class PeakSeen(BaseException):
    """Unwinds the cell in which the peak was seen.  Not an `Exception`, so that no program takes it for a fault."""


_stopped = False


def running() -> bool:
    """Whether this process is a kernel that executes cells."""
    shell = sys.modules.get("IPython.core.interactiveshell")
    if shell is None or "ipykernel" not in sys.modules or not shell.InteractiveShell.initialized():
        return False
    return getattr(shell.InteractiveShell.instance(), "kernel", None) is not None


def leave() -> NoReturn:
    """End the present cell as a success, and all that follow before they begin."""
    global _stopped
    _stopped = True
    raise PeakSeen


def install(shell: Any) -> None:
    """Attach to IPython's `InteractiveShell`."""
    original = shell.run_code

    async def run_code(self, code_obj, result=None, **kwargs):
        if not _stopped:
            failed = await original(self, code_obj, result, **kwargs)
            if not _stopped:
                return failed
        if result is not None:
            result.error_in_exec = None
        return False

    shell.run_code = run_code

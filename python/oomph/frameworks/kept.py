"""Finds what a program keeps on the card, more in every iteration: lists and dictionaries in the frames of an error.

PyTorch's tensors are followed while the program runs (`oomph.program.kept`). Here the moment of the error has to do: a
container counts where the loop that was under way adds to it, or where the line that died reads it after such a loop. What
was filled once before, such as the weights in a list of layers, does not.
"""

from __future__ import annotations

import ast
import linecache

from oomph import sites
from oomph.looking import with_locals
from oomph.program.growers import growers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any

WEIGHS = 10
"""A container counts from this part of the card on: a tenth."""

_MOST_MEMBERS = 100000
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_CONTAINERS = (list, dict)


def growing(trace: TracebackType | None, on_card: Callable[[Any], Iterable[tuple[int, int]]]) -> list[dict[str, Any]]:
    """The containers of the user's frames on the way to an error that hold arrays on a card and grow in the loop there.

    `on_card` gives the arrays in a value: pairs of what identifies each, and its bytes.
    """
    found: list[dict[str, Any]] = []
    while trace is not None:
        frame, line = trace.tb_frame, trace.tb_lineno
        file = frame.f_code.co_filename
        if sites.is_user_file(file):
            lines = _lines(file, line)
            if lines:
                look = lambda names, lines=lines, file=file: [
                    _held(name, names[name], lines[name], file, on_card) for name in lines if name in names
                ]
                found.extend(one for one in with_locals(frame, look) or () if one is not None)
        trace = trace.tb_next
    return found


def _held(name, value, line, file, on_card):
    if not isinstance(value, _CONTAINERS) and type(value).__name__ != "deque":
        return None
    members = list(value.values()) if isinstance(value, dict) else list(value)
    known, count = {}, 0
    for member in members[:_MOST_MEMBERS]:
        parts = dict(on_card(member))
        count += len(parts) if isinstance(member, _CONTAINERS) and isinstance(value, dict) else bool(parts)
        known.update(parts)
    if count < 2:
        return None
    return {"kind": "results", "file": file, "line": line, "count": count, "bytes": sum(known.values()), "name": name}


def _lines(file, line):
    """The names that grow in a loop around a line of a file, or that the line reads, with the first line that adds to each."""
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    within = lambda node, number: node.lineno <= number <= node.end_lineno
    loops = [node for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    read: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, _LOOPS) and within(node, line) and not hasattr(node, "body"):
            read.update(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    names = {}
    for name, number, adds in growers(tree):
        if not adds or name is None or name in names:
            continue
        around = [loop for loop in loops if within(loop, number)]
        if any(within(loop, line) for loop in around) or around and name in read:
            names[name] = number
    return names

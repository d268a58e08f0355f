"""Detects whether a program goes on by a number: loops that end when the loss is low enough.

A loss of large tensors is never computed and reads as 0, so that such a loop ends at its first step, or at its last.
Programs read a loss in every step to print it, and no word is due for that. So the user's source is looked at: what is
read, or the name that it is given, has to be in the condition of a loop, or of a branch that leaves one.
"""

from __future__ import annotations

import ast
import linecache

from oomph import flags, sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

#: What asks whether a number is sound. The zero that stands for it is, and a healthy run goes on.
_SOUND = ("isnan", "isfinite", "isinf")


def asked_at(frame: FrameType | None) -> tuple[str, int] | None:
    """The line of the user's, as `(file, line)`, at which the number that `frame` reads decides; None where it does not.

    `frame` is that of the code which reads. Numbers that a library reads are its own affair.
    """
    frame = None if frame is None else flags.reader(_between, frame)
    if frame is None or not sites.is_user_file(frame.f_code.co_filename):
        return None
    name = frame.f_code.co_filename
    line = deciding_line("".join(linecache.getlines(name, frame.f_globals)), frame.f_lineno)
    return None if line is None else (name, line)


def _between(name):
    """Whether code only hands on what it is asked for: our own, and the methods of torch's tensors."""
    return sites.is_own_file(name) or name.endswith(("/torch/_tensor.py", "/torch/_ops.py", "/torch/utils/_contextlib.py"))


def deciding_line(source: str, line: int) -> int | None:
    """The line of `source` on which a loop goes on, or is left, by what `line` reads; None where there is none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    scope = _scope(tree, line)
    names: set[str | None] = set()
    for node in ast.walk(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value and _spans(node.value, line):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(_name(target) for target in targets)
    names.discard(None)
    for node in ast.walk(scope):
        if not isinstance(node, (ast.If, ast.While)):
            continue
        if isinstance(node, ast.If) and not any(_leaves(one) for one in (*node.body, *node.orelse)):
            continue
        parts = list(ast.walk(node.test))
        if any(_name(getattr(part, "func", None), last=True) in _SOUND for part in parts):
            continue
        reads = _spans(node.test, line) and any(isinstance(part, ast.Call) for part in parts)
        if reads or any(_name(part) in names for part in parts):
            return node.lineno
    return None


def _scope(tree, line):
    """The innermost function around a line, or the module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [node for node in ast.walk(tree) if isinstance(node, kinds) and _spans(node, line)]
    return max(around, key=lambda node: node.lineno, default=tree)


def _spans(node, line):
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _leaves(statement):
    """Whether a statement leaves a loop or a function in good order."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if isinstance(statement, (ast.Break, ast.Return)):
        return True
    inside = [child for child in ast.iter_child_nodes(statement) if isinstance(child, (ast.stmt, ast.ExceptHandler))]
    return any(_leaves(child) for child in inside)


def _name(node, last=False):
    """A name or a chain of attributes as it is written, or only its last part; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        if last:
            return node.attr
        before = _name(node.value)
        return None if before is None else "%s.%s" % (before, node.attr)
    return None

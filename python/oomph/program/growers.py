"""Finds lines of the user's files that make something grow, by its name: `NAME.append(`, `NAME[...] =`, `NAME +=`, `NAME =
f(NAME)`."""

from __future__ import annotations

import ast
import linecache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_KEEPERS = frozenset(("append", "appendleft", "extend", "extendleft", "add", "insert", "update", "setdefault", "put"))

_read: dict[str, tuple[int, list[tuple[str | None, int, bool]]]] = {}


def line_in(file: str, names: Collection[str], is_sum: bool) -> int:
    """The first line of a file that adds to one of these names; 0 where none does. Only a sum grows by `NAME = f(NAME)`."""
    for name, line, adds in _lines(file):
        if name in names and (adds or is_sum):
            return line
    return 0


def _lines(file):
    """Every name with a line that makes it grow, and whether that line adds to it rather than computing it from itself."""
    text = "".join(linecache.getlines(file))
    known = _read.get(file)
    if known is None or known[0] != len(text):
        try:
            found = sorted(growers(ast.parse(text)), key=lambda one: (not one[2], one[1]))
        except (SyntaxError, ValueError, RecursionError):
            found = []
        known = _read[file] = len(text), found
    return known[1]


def growers(tree: ast.AST) -> Iterator[tuple[str | None, int, bool]]:
    """The names that lines of a program make grow, each with its line and whether it is added to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPERS:
            yield _name(node.func.value), node.lineno, True
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield _name(node.target), node.lineno, True
        elif isinstance(node, ast.Assign):
            for target in _targets(node.targets):
                if isinstance(target, ast.Subscript):
                    yield _name(target), node.lineno, True
                elif any(_name(part) == _name(target) for part in ast.walk(node.value) if isinstance(part, type(target))):
                    yield _name(target), node.lineno, False


def _targets(targets):
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _targets(target.elts)
        else:
            yield target


def _name(node):
    """`self.history` of `self.history["loss"]`; None for what has no name."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _name(node.value)
        return None if owner is None else "%s.%s" % (owner, node.attr)
    return None

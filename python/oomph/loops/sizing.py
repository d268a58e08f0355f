"""Finds the counters of a loop that sizes follow from once it has ended: `rows[:at]`, `torch.empty(n, 8)`.

Most of what a loop counts is only printed, as a part of what was right, and is worth no time. The source says which is which:
what is in a subscript, or in a call whose result is used, may become the size of something.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys

from oomph import sites
from oomph.looking import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oomph.loops.census import Path

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_NO_SIZES = frozenset((
    "str", "repr", "format", "float", "bool", "print", "dict", "isinstance", "iter", "next", "tensor", "as_tensor", "array", "asarray",
))  # fmt: skip
"""Functions of Python's, PyTorch's and NumPy's that make texts or contents of a number, and no size.

The source alone does not say what a library's function makes of its arguments. One of the program's own that has such a name is
not meant.
"""


def sizing(paths: Iterable[Path], file: str, line: int) -> list[Path]:
    """Those of a loop's counters that decide sizes outside it; none where its source cannot be read."""
    found = _uses_around(file, line)
    if found is None:
        return []
    scope, inside, anywhere, attributes = found
    sized = []
    for path in paths:
        # `self.at` may be read in any method.
        known = attributes if len(path) > 2 else inside if path[0] == (file, scope) else anywhere
        if path[-1] in known:
            sized.append(path)
    return sized


@functools.lru_cache(maxsize=64)
def _uses_around(file, line):
    """What decides sizes outside the loop at a line.

    The name of the function around it, the variables in this function and in the whole file, and the attributes.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = _find(tree, line, tree)
    if found is None:
        return None
    loop, function = found
    own_functions = _own_functions(tree)
    near, far = _Uses(function, loop, own_functions), _Uses(tree, loop, own_functions)
    own = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)} if hasattr(loop, "target") else set()
    # `i` of another loop is another number.
    again = own & _bound(function, loop)
    name = function.name if isinstance(function, _FUNCTIONS) else ""
    return name, near.names - again, far.names - again, far.attributes


def _own_functions(tree):
    """The names of functions that a file makes itself, or takes from another of the program's."""
    found = set()
    for one in ast.walk(tree):
        if isinstance(one, (*_FUNCTIONS, ast.ClassDef)):
            found.add(one.name)
        elif isinstance(one, ast.Assign):
            found.update(target.id for target in one.targets if isinstance(target, ast.Name))
        elif isinstance(one, ast.ImportFrom):
            module = sys.modules.get(one.module or "")
            if one.level or sites.is_user_file(str(attribute(module, "__file__", ""))):
                found.update(alias.asname or alias.name for alias in one.names)
    return found


def _find(node, line, function):
    """The loop that begins at a line, and the function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LOOPS) and child.lineno == line:
            return child, function
        found = _find(child, line, child if isinstance(child, _FUNCTIONS) else function)
        if found is not None:
            return found
    return None


def _outside(node: ast.AST, loop: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """All below a node with what it is in, without what is in the loop."""
    for child in ast.iter_child_nodes(node):
        if child is not loop:
            yield child, node
            yield from _outside(child, loop)


def _bound(node, loop):
    """The variables that are given a value outside the loop."""
    nodes = (one for one, _ in _outside(node, loop))
    return {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


class _Uses:
    """The names outside a loop from whose values sizes may follow."""

    def __init__(self, tree, loop, own):
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self._own = own
        assigned: list[tuple[ast.AST, ast.AST]] = []
        for node, around in _outside(tree, loop):
            if isinstance(node, ast.Subscript):
                self._decides(node.slice)
            elif isinstance(node, ast.Call) and not isinstance(around, ast.Expr):
                self._called(node)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                for one, other in ((node.left, node.right), (node.right, node.left)):
                    if isinstance(one, ast.List):
                        self._decides(other)
            elif isinstance(node, ast.Assign):
                assigned.extend((target, node.value) for target in node.targets)
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                assigned.append((node.target, node.value))
        # What is given another name first.
        for _ in range(2):
            for target, value in assigned:
                if any(self._knows(one) for one in _values(target)):
                    self._decides(value)

    def _called(self, node):
        named = node.func
        name = named.id if isinstance(named, ast.Name) else named.attr if isinstance(named, ast.Attribute) else ""
        if name in _NO_SIZES and name not in self._own:
            return
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._decides(given)

    def _knows(self, node):
        return node.id in self.names if isinstance(node, ast.Name) else node.attr in self.attributes

    def _decides(self, node):
        for one in _values(node):
            if isinstance(one, ast.Name):
                self.names.add(one.id)
            else:
                self.attributes.add(one.attr)


def _values(node):
    """The variables and attributes that the value of an expression is counted from; a quotient does not count."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield node
    elif isinstance(node, ast.Slice):
        for one in (node.lower, node.upper, node.step):
            yield from _values(one)
    elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Div):
        yield from _values(node.left)
        yield from _values(node.right)
    elif isinstance(node, ast.UnaryOp):
        yield from _values(node.operand)
    elif isinstance(node, ast.IfExp):
        yield from _values(node.body)
        yield from _values(node.orelse)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for one in node.elts:
            yield from _values(one)
    elif isinstance(node, ast.Starred):
        yield from _values(node.value)

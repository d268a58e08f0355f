"""Decides how a flag reads whose value was never computed: as a healthy run needs it to go on.

Kernels of the virtual GPU do nothing, so that the result of `torch.isfinite(loss)`, or of the check by which a
distribution accepts its parameters, has no value. Read as no, it would end a program that a real card runs. So the source of
whoever reads is looked at, the user's or a library's: where one answer raises an exception, or leaves the program,
the other is given; and what asks whether numbers are sound hears that they are.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType
    from typing import Any

_SOUND = {"isfinite": True, "is_finite": True, "all_finite": True, "isnan": False, "isinf": False, "is_nan": False,
          "is_inf": False, "isposinf": False, "isneginf": False}
"""What asks whether numbers are sound, and what a healthy run answers."""
_EXITS = ("exit", "_exit", "quit", "abort")
_HANDS_ON = ("bool", "all", "any", "item", "numpy", "cpu", "asarray", "array", "squeeze", "detach", "reshape", "ravel",
             "reduce_all", "reduce_any", "alltrue", "device_get", "block_until_ready", "tolist", "_is_all_true",
             "_is_any_true")
"""Calls whose result is what they are given, as far as a flag goes that is the same everywhere."""
_MOST_CALLERS = 4
"""How many functions may hand a flag on by giving it back."""
_OVERRIDES = ("__torch_function__", "__torch_dispatch__")
"""How a subclass of tensors overrides what torch does."""
_NEGATES = ("logical_not", "bitwise_not", "bitwise_invert", "invert")


def healthy(frame: FrameType | None) -> bool | None:
    """What the flag that `frame` reads is in a run that goes on; None where no source says."""
    return _asked(_healthy_at, frame)


def going_on(frame: FrameType | None) -> bool | None:
    """What the flag that `frame` reads is where a loop goes on to its other end; None where it ends none that has another."""
    return _asked(_going_on_at, frame)


def _asked(question, frame):
    same = True
    for _ in range(_MOST_CALLERS):
        if frame is None:
            return None
        try:
            answer, handed_on = question(frame.f_code, frame.f_lasti, frame.f_lineno)
        except Exception:
            # Sources may be anything, and a guess that cannot be made is none.
            return None
        if answer is not None or handed_on is None:
            return None if answer is None else answer is same
        # A function that gives back what it reads leaves it to its caller what becomes of it.
        frame, same = frame.f_back, same is handed_on
    return None


def raises_at(code: CodeType, line: int) -> bool:
    """Whether the statement at a line of a code object is there to raise an exception."""
    tree = _tree(code.co_filename)
    return tree is not None and any(
        isinstance(node, (ast.Raise, ast.Assert)) and _covers(node, line) for node in ast.walk(tree)
    )


@functools.lru_cache(maxsize=4096)
def _healthy_at(code, lasti, line):
    """What a flag is that code reads, and whether its function gives it back: the same (True) or the opposite (False)."""
    tree = _tree(code.co_filename)
    if tree is None:
        return None, None
    around = _Around(tree, code, line)
    reads = around.reading(_span_of(code, lasti), line)
    for question in (around.not_to_raise, around.not_to_raise_by_name, around.sound):
        answers = {question(read) for read in reads}
        if len(answers) == 1 and None not in answers:
            return answers.pop(), None
    return None, around.given_back(reads[0]) if len(reads) == 1 else None


@functools.lru_cache(maxsize=4096)
def _going_on_at(code, lasti, line):
    """The same for a flag by which a loop is left."""
    tree = _tree(code.co_filename)
    if tree is None:
        return None, None
    around = _Around(tree, code, line)
    reads = around.reading(_span_of(code, lasti), line)
    answers = {around.not_to_leave(read) for read in reads}
    if len(answers) == 1 and None not in answers:
        return answers.pop(), None
    return None, around.given_back(reads[0]) if len(reads) == 1 else None


@functools.lru_cache(maxsize=64)
def _tree(file):
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _span_of(code, lasti):
    """Where the expression lies that an instruction computes, as `(first line, first column, last line, last column)`;
    None before Python 3.11, which does not keep it.
    """
    positions: Callable[[], Iterator[tuple[int | None, ...]]] | None = getattr(code, "co_positions", None)
    if positions is None:
        return None
    found = next(itertools.islice(positions(), lasti // 2, None), None)
    if found is None or None in found:
        return None
    first, last, column, end = found
    return first, column, last, end


class _Around:
    """The function around a place, with what encloses each of its nodes."""

    def __init__(self, tree, code, line):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        functions = [node for node in ast.walk(tree) if isinstance(node, kinds) and _covers(node, line)]
        self.scope = max(functions, key=lambda node: (node.lineno, node.col_offset), default=tree)
        self.parents: dict[Any, Any] = {}
        for node in ast.walk(self.scope):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    def reading(self, span, line):
        """The expressions that may be the one that reads: that of an instruction, or else what is tested on a line."""
        exact = [node for node in self.parents if isinstance(node, ast.expr) and _span(node) == span]
        # Python 3.11 gives the branches of a test the place of its first part.
        if sys.version_info < (3, 12):
            exact = [node for node in exact if isinstance(node, ast.Call)]
        # `not x` reads `x`.
        tests = exact[:1] or [node.test for node in self.parents if isinstance(node, (ast.If, ast.While, ast.Assert))]
        leaves = [leaf for test in tests for leaf in _leaves(test) if _covers(leaf, line)]
        calling = [leaf for leaf in leaves if any(isinstance(part, ast.Call) for part in ast.walk(leaf))]
        if leaves:
            return calling or leaves
        values = [leaf for node in self.parents if _is_kept(node) and _covers(node.value, line) for leaf in _leaves(node.value)]
        return values if len(values) == 1 else []

    def not_to_raise(self, read):
        """The value of an expression inside a test with which the test does not lead to an exception."""
        node, same = read, True
        while True:
            parent = self.parents.get(node)
            if isinstance(parent, (ast.If, ast.Assert)):
                if node is not parent.test:
                    return None
                wanted = _passes(parent)
                return None if wanted is None else wanted is same
            step = _handed_on(parent, node)
            if step is None:
                return None
            node, same = parent, same is step

    def not_to_raise_by_name(self, read):
        """The same for an expression whose value is kept under a name that tests ask for."""
        statement, same = self._kept_by(read)
        if not _is_assignment(statement):
            return None
        names = _names(statement)
        answers = {self.not_to_raise(one) for one in self.parents
                   if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in names}
        answers.discard(None)
        return answers.pop() is same if len(answers) == 1 else None

    def not_to_leave(self, read, by_name=True):
        """The value of an expression with which a loop is not left that ends in another way as well."""
        node, same, limited = read, True, None
        while True:
            parent = self.parents.get(node)
            if isinstance(parent, ast.If) and node is parent.test:
                wanted = self._stays(parent)
                return None if wanted is None else wanted is same
            if isinstance(parent, ast.While) and node is parent.test:
                # Another part of the condition ends the loop as well.
                return same if limited else None
            if by_name and _is_assignment(parent):
                answers = {self.not_to_leave(one, False) for one in self._uses(_names(parent))}
                answers.discard(None)
                return answers.pop() is same if len(answers) == 1 else None
            step = _handed_on(parent, node)
            if step is None:
                return None
            if isinstance(parent, ast.BoolOp):
                limited = isinstance(parent.op, ast.And)
            elif limited is not None and not step:
                limited = not limited
            node, same = parent, same is step

    def _uses(self, names):
        """Where the values of names are asked for."""
        return [one for one in self.parents
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in names]

    def _stays(self, statement):
        """The value of the test of an `if` with which the loop around it, which ends in another way too, is not left."""
        loop = self.parents.get(statement)
        while loop is not None and not isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
            loop = self.parents.get(loop)
        if loop is None or isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant):
            return None
        then, otherwise = self._leaves_loop(statement.body), self._leaves_loop(statement.orelse)
        return None if then == otherwise else not then

    def _leaves_loop(self, statements):
        """Whether statements leave a loop: at once, or by a flag that its condition asks for."""
        for one in statements:
            if isinstance(one, (ast.Break, ast.Return)):
                return True
            constant = getattr(getattr(one, "value", None), "value", None)
            if _is_assignment(one) and isinstance(constant, bool):
                answers = {self.not_to_leave(use, False) for use in self._uses(_names(one))
                           if not isinstance(self.parents.get(use), ast.If)}
                answers.discard(None)
                if answers and answers == {not constant}:
                    return True
        return False

    def given_back(self, read):
        """Whether an expression is what the function gives back (True), or its opposite is (False); None for neither."""
        statement, same = self._kept_by(read)
        return same if isinstance(statement, ast.Return) else None

    def _kept_by(self, read):
        """The assignment or `return` that keeps the value of an expression, and whether it is kept unchanged (or its opposite is)."""
        node, same = read, True
        while not _is_kept(self.parents.get(node)):
            parent = self.parents.get(node)
            step = _handed_on(parent, node)
            if step is None:
                return None, same
            node, same = parent, same is step
        return self.parents[node], same

    def sound(self, read):
        """The value of an expression that asks whether numbers are sound."""
        answers = _soundness(read)
        if not answers and isinstance(read, ast.Name):
            made = [node.value for node in self.parents if _is_assignment(node) and read.id in _names(node)]
            answers = set().union(*map(_soundness, made)) if made else set()
        return answers.pop() if len(answers) == 1 else None


def _soundness(expression):
    """What each question about soundness in an expression makes of it, in a healthy run."""
    answers = set()

    def walk(node, same):
        name = _called(node)
        if name in _SOUND:
            answers.add(_SOUND[name] is same)
            return
        if name in _NEGATES or (isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert))):
            same = not same
        for child in ast.iter_child_nodes(node):
            walk(child, same)

    walk(expression, True)
    return answers


def _passes(statement):
    """The value of a statement's test with which it raises nothing; None where it never raises, or always."""
    if isinstance(statement, ast.Assert):
        return True
    then, otherwise = _ends(statement.body), _ends(statement.orelse)
    if then == otherwise:
        return None
    return not then


def _ends(statements):
    """Whether statements end the program: by an exception, or by leaving."""
    for one in statements:
        if isinstance(one, ast.Raise):
            # The end of an iteration is none of the program.
            name = getattr(one.exc, "id", None) or _called(one.exc)
            return name not in ("StopIteration", "StopAsyncIteration")
        if isinstance(one, ast.Expr) and _called(one.value) in _EXITS:
            return True
    return False


def _handed_on(parent, child):
    """Whether the value of `parent` is that of its part `child` (True) or the opposite (False); None for neither."""
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, (ast.Not, ast.Invert)):
        return False
    if isinstance(parent, (ast.BoolOp, ast.Attribute)):
        return True
    if isinstance(parent, ast.Call):
        name = _called(parent)
        if child is not parent.func and child not in parent.args[:1]:
            return None
        return True if name in _HANDS_ON else False if name in _NEGATES else None
    if isinstance(parent, ast.Compare) and len(parent.ops) == 1 and child is parent.left:
        constant = getattr(parent.comparators[0], "value", None)
        if isinstance(parent.ops[0], (ast.Is, ast.Eq)) and isinstance(constant, bool):
            return constant
        if isinstance(parent.ops[0], (ast.IsNot, ast.NotEq)) and isinstance(constant, bool):
            return not constant
    return None


def _leaves(test):
    """The parts of a test between its `not`, `and` and `or`, whose truth is asked for."""
    if isinstance(test, ast.BoolOp):
        return [leaf for value in test.values for leaf in _leaves(value)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _leaves(test.operand)
    # `x is False` asks for `x`.
    if isinstance(test, ast.Compare) and _handed_on(test, test.left) is not None:
        return _leaves(test.left)
    return [test]


def _is_assignment(node: Any) -> bool:
    return isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None


def _is_kept(node: Any) -> bool:
    return _is_assignment(node) or (isinstance(node, ast.Return) and node.value is not None)


def _names(assignment):
    targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _called(node):
    """The last part of the name of what is called; None for anything else."""
    function = getattr(node, "func", None)
    return getattr(function, "id", None) or getattr(function, "attr", None)


def _covers(node, line):
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _span(node):
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def reader(between: Callable[[str], bool], frame: FrameType | None = None) -> FrameType | None:
    """The innermost frame whose file is not `between` the program and the card, from `frame` on or from the caller.

    A subclass of tensors that overrides what torch does (`__torch_function__`) passes everything on, a reading as well:
    whoever called it reads.
    """
    if frame is None:
        frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_name in _OVERRIDES or between(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame

"""Finds who will catch an out-of-memory error: which `except` on the stack, the program's own or a library's, and whether it names
the error.

The stack is read where memory is refused, before the error is raised. A frame catches it where its present line lies in the body of
a `try` one of whose handlers takes the error. Nothing of a frame's variables is touched: a snapshot of them would keep tensors.
"""

from __future__ import annotations

import ast
import builtins
import sys
import threading

from oomph import sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

_MOST_FRAMES = 200
_LONGEST = 2_000_000
"""Bytes of a source file that is read for its handlers."""
_GENERAL = ("Exception", "BaseException", "RuntimeError", "StandardError", "Throwable")
_NAMES = ("OutOfMemoryError",)
_TEXTS = ("out of memory", "oom", "alloc")
"""What a handler of a more general error looks for in its text."""

_files: dict[str, list[_Try]] = {}


class Caught:
    """Who catches an error."""

    def __init__(self, file: str, by_program: bool, names_it: bool) -> None:
        self.file = file
        self.by_program = by_program
        """The handler is the program's own, and not a library's."""
        self.names_it = names_it
        """It asks for this error: by its class, or by the words of a more general one."""
        self.thread = threading.get_ident()


class _Try:
    """One `try` with its handlers."""

    def __init__(self, node: Any, function: int) -> None:
        self.first: int = node.body[0].lineno
        self.last: int = node.body[-1].end_lineno
        self.function = function
        """The line of the function that it belongs to; 0 of a module."""
        self.handlers = node.handlers


def of_stack(frame: FrameType | None, kind: type | None) -> Caught | None:
    """Who catches an error of class `kind` that is raised in `frame`; None where nobody does, so that the interpreter or the
    machinery of a thread gets it."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        if not sites.is_own_file(code.co_filename) and _may_catch(code, frame.f_lasti):
            for one in _tries(code.co_filename):
                if one.first <= frame.f_lineno <= one.last and one.function == _line_of(code):
                    found = _handled(one, frame, kind)
                    if found is not None:
                        return Caught(code.co_filename, sites.is_user_file(code.co_filename), found)
        frame = frame.f_back
    return None


def _line_of(code: CodeType) -> int:
    return 0 if code.co_name == "<module>" else code.co_firstlineno


def _handled(one, frame, kind):
    """Whether the handler that takes the error names it; None where none of this `try` keeps it."""
    for handler in one.handlers:
        if not _takes(handler.type, frame, kind):
            continue
        names_it = _names(handler.type, frame, kind) or _reads_words(handler)
        # A handler whose last word is a plain `raise` has only looked at it.
        passes_on = isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None
        return None if passes_on else names_it
    return None


def _takes(node, frame, kind):
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(_takes(item, frame, kind) for item in node.elts)
    found = _value(node, frame)
    if isinstance(found, type) and isinstance(kind, type):
        return issubclass(kind, found)
    if isinstance(found, tuple) and isinstance(kind, type):
        return any(isinstance(item, type) and issubclass(kind, item) for item in found)
    name = _last_name(node)
    return name in _GENERAL or name in _NAMES


def _names(node, frame, kind):
    if node is None:
        return False
    if isinstance(node, ast.Tuple):
        return any(_names(item, frame, kind) for item in node.elts)
    found = _value(node, frame)
    return found is kind if isinstance(found, type) else _last_name(node) in _NAMES


def _reads_words(handler):
    for node in ast.walk(ast.Module(body=handler.body, type_ignores=[])):
        if isinstance(node, ast.Compare) and any(isinstance(operator, (ast.In, ast.NotIn, ast.Eq, ast.NotEq)) for operator in node.ops):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    if any(words in part.value.lower() for words in _TEXTS):
                        return True
        if isinstance(node, ast.Call):
            name = (_last_name(node.func) or "").lower()
            # `isinstance(error, torch.OutOfMemoryError)`, and the questions that libraries have: `is_oom_error(error)`.
            if "oom" in name or "out_of_memory" in name or "reduce_batch_size" in name:
                return True
            if name == "isinstance" and any(_last_name(part) in _NAMES for part in ast.walk(node)):
                return True
    return False


def _value(node, frame):
    """What a name of a handler means, as far as the globals of the frame say."""
    if isinstance(node, ast.Name):
        return frame.f_globals.get(node.id, getattr(builtins, node.id, None))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        # Of modules only: an attribute of anything else may be computed.
        return vars(owner).get(node.attr) if isinstance(owner, type(sys)) else None
    return None


def _last_name(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _tries(filename):
    known = _files.get(filename)
    if known is None:
        known = _files[filename] = _read(filename)
    return known


def _read(filename):
    import linecache

    try:
        text = "".join(linecache.getlines(filename))
        if not text or len(text) > _LONGEST:
            return []
        found: list[_Try] = []
        _collect(ast.parse(text), 0, found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # A file that was changed meanwhile, or one without source: nothing is known of it.
        return []
    # The innermost first.
    return sorted(found, key=lambda one: (-one.first, one.last))


def _collect(node, function, found):
    for child in ast.iter_child_nodes(node):
        here = function
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            decorators = getattr(child, "decorator_list", None)
            here = min([child.lineno, *(one.lineno for one in decorators or [])])
        elif isinstance(child, ast.Try) or type(child).__name__ == "TryStar":
            found.append(_Try(child, function))
        _collect(child, here, found)


def _may_catch(code, place):
    """Whether some handler of a code object covers an instruction. Before Python 3.11 the code does not say."""
    table = getattr(code, "co_exceptiontable", None)
    return table is None or any(first <= place < last for first, last in _covered(table))


def _covered(table):
    """The ranges of instructions, in bytes, of an exception table: numbers of six bits each, the first of an entry marked."""
    numbers = iter(table)

    def number():
        part = next(numbers)
        value = part & 63
        while part & 64:
            part = next(numbers)
            value = value << 6 | part & 63
        return value

    try:
        while True:
            start, length = number() * 2, number() * 2
            number()
            number()
            yield start, start + length
    except StopIteration:
        return

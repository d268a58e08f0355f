"""Finds who will catch an out-of-memory error: which `except` on the stack, the program's own or a library's, and whether it names
the error.

The stack is read where memory is refused, before the error is raised. A frame catches it where its present line lies in the body of
a `try` one of whose handlers takes the error. Nothing of a frame's variables is touched: a snapshot of them would keep tensors.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
import threading
import types

from oomph import sites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

_MOST_FRAMES = 200
_LONGEST = 2_000_000
"""Bytes of a source file that is read for its handlers."""
_NAMES = ("OutOfMemoryError",)
"""What PyTorch calls it, where a class cannot be looked up: one that a function has imported for itself."""
_REFUSALS = (
    "cuda out of memory. tried to allocate 2.00 gib. gpu 0 has a total capacity of 11.76 gib of which 1.00 gib is free. "
    "including non-pytorch memory, this process has 10.76 gib memory in use. of the allocated memory 10.00 gib is allocated by "
    "pytorch, and 0.50 gib is reserved by pytorch but unallocated.",
    "cuda error: out of memory", "hip out of memory. tried to allocate", "cublas_status_alloc_failed when calling",
    "cudnn_status_alloc_failed", "resource_exhausted: out of memory while trying to allocate",
)  # fmt: skip
"""What libraries say where memory is refused: a text that asks for it is a part of one of them."""
_ABOUT_MEMORY = ("memory", "alloc")
_DEEPEST = 3
"""Functions that a handler asks, and those that these ask."""

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
        names_it = _names(handler.type, frame, kind) or _Asking(frame, kind).asks(handler, frame.f_globals, frame.f_code.co_filename)
        # A handler whose last word is a plain `raise` has only looked at it.
        passes_on = isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None
        return None if passes_on else names_it
    return None


def _takes(node, frame, kind):
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(_takes(item, frame, kind) for item in node.elts)
    found = _value(node, frame.f_globals)
    if isinstance(found, type) and isinstance(kind, type):
        return issubclass(kind, found)
    if isinstance(found, tuple) and isinstance(kind, type):
        return any(isinstance(item, type) and issubclass(kind, item) for item in found)
    return _last_name(node) in _NAMES


def _names(node, frame, kind):
    return node is not None and _is_class(node, frame.f_globals, kind)


class _Asking:
    """Whether code asks if an error is one of memory: by its class, by its words, or by a function that does so."""

    def __init__(self, frame: FrameType, kind: type | None) -> None:
        self._kind = kind
        self._seen: set[tuple[str, int]] = set()

    def asks(self, node: Any, space: dict[str, Any], file: str, depth: int = 0) -> bool:
        """The same for the body of a handler or a function, whose globals are `space`."""
        texts = _constants(node)
        return any(
            self._is_asked(one, space, file, depth, texts, asked)
            for statement in node.body for one, asked in _questions(statement, depth > 0, False)
        )

    def _is_asked(self, node, space, file, depth, texts, asked):
        if isinstance(node, ast.Compare):
            return any(_is_of_refusal(text) for part in ast.walk(node) for text in _texts(part, texts, space))
        if isinstance(node, ast.comprehension):
            # `any(words in str(error) for words in WORDS)`
            return any(_is_of_refusal(text) for text in _texts(node.iter, texts, space))
        called = _value(node.func, space)
        if called is isinstance and len(node.args) == 2:
            return _is_class(node.args[1], space, self._kind)
        if asked and any(_is_of_refusal(text) for given in node.args for text in _texts(given, texts, space)):
            # `re.search("out of memory", str(error))`
            return True
        return depth < _DEEPEST and any(
            self.asks(function, names, where, depth + 1) for function, names, where in self._functions(node.func, called, space, file)
        )

    def _functions(self, node, called, space, file):
        """The functions that a call may mean, with their globals and files; each is looked at once."""
        if isinstance(called, types.FunctionType):
            where, line = called.__code__.co_filename, called.__code__.co_firstlineno
            found = [(one, called.__globals__, where) for one in _defined(where) if _begins(one) == line]
        elif called is None and isinstance(node, ast.Attribute):
            # A method: what an object is of cannot be asked, and its class is most often in the same file.
            found = [(one, space, file) for one in _defined(file) if one.name == node.attr]
        else:
            found = []
        for one, names, where in found:
            if (where, one.lineno) not in self._seen:
                self._seen.add((where, one.lineno))
                yield one, names, where


def _questions(node, answers, asked):
    """Comparisons and calls below a statement whose result is used, and whether it decides something.

    What is raised or only said (`log("out of memory")`) asks nothing. With `answers`, what is returned is an answer.
    """
    if isinstance(node, ast.Raise) or isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Yield, ast.Await)):
        return
    if isinstance(node, (ast.Compare, ast.Call, ast.comprehension)):
        yield node, asked
    asked = asked or isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.Compare)) or answers and isinstance(node, ast.Return)
    test = getattr(node, "test", None)
    for child in ast.iter_child_nodes(node):
        yield from _questions(child, answers, asked or child is test)


def _is_of_refusal(text):
    text = text.lower()
    return any(word in text for word in _ABOUT_MEMORY) and any(text.strip() in refusal for refusal in _REFUSALS)


def _constants(node):
    """The texts that names of a function stand for, as far as it says so itself."""
    found: dict[str, Any] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            found[one.targets[0].id] = one.value
    return found


def _texts(node, names, space):
    """The texts that an expression is, or a row of them."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), (ast.Constant, ast.Tuple, ast.List, ast.Set)):
        return _texts(names[node.id], {}, {})
    found = _value(node, space)
    if isinstance(found, str):
        return [found]
    return [one for one in found if isinstance(one, str)] if isinstance(found, (tuple, list, set, frozenset)) else []


def _is_class(node, space, kind):
    if isinstance(node, ast.Tuple):
        return any(_is_class(item, space, kind) for item in node.elts)
    found = _value(node, space)
    return found is kind if isinstance(found, type) else _last_name(node) in _NAMES


def _value(node, space):
    """What a name means, as far as the globals of its code say."""
    if isinstance(node, ast.Name):
        return space.get(node.id, getattr(builtins, node.id, None))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, space)
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
    tree = _tree(filename)
    if tree is None:
        return []
    found: list[_Try] = []
    _collect(tree, 0, found)
    # The innermost first.
    return sorted(found, key=lambda one: (-one.first, one.last))


@functools.lru_cache(maxsize=32)
def _tree(filename):
    import linecache

    try:
        text = "".join(linecache.getlines(filename))
        return ast.parse(text) if text and len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # A file that was changed meanwhile, or one without source: nothing is known of it.
        return None


def _defined(filename):
    """The functions of a file."""
    tree = _tree(filename)
    return [one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))] if tree is not None else []


def _begins(function):
    """The line that the code of a function begins at: that of its first decorator."""
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


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

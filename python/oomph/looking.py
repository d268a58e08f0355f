"""Looks at the program's objects and variables without changing what it does.

Attributes may be code of the program's own that raises whatever it likes, and a look at variables must not keep what they
stand for alive.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

    from typing_extensions import TypeGuard

_OPTIMIZED = 1
"""The flag of code whose names are not kept in a dictionary."""
_NOBODYS = "_oomph_no_such_name"
"""A name that only objects have that answer to every name."""
_READERS = frozenset(("locals", "vars", "eval", "exec", "dir"))


def attribute(thing: object, name: str, default: Any = None) -> Any:
    """An attribute of an object; `default` where it has none, where asking for it raises, or where it answers to every name."""
    try:
        found = getattr(thing, name, default)
        # What pyparsing reads gives an empty text for each name that it lacks, and a mock gives a mock.
        if found is not default and hasattr(type(thing), "__getattr__") and hasattr(thing, _NOBODYS):
            return default
        return found
    except Exception:
        # A property may be code of the program's own.
        return default


def is_mapping(thing: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether an object has values by names. An object that only has a method `items` may mean something else by it."""
    return isinstance(thing, Mapping)


def has_own_names(code: CodeType) -> bool:
    """Whether code is that of a function, whose variables are its own; a module's are its globals."""
    return bool(code.co_flags & _OPTIMIZED)


def with_locals(frame: FrameType, look: Callable[[dict[str, Any]], Any]) -> Any:
    """Call `look` with the variables of a frame by their names, and give what it returns; None where they cannot be had."""
    code = frame.f_code
    if not has_own_names(code):
        return look(frame.f_locals)
    if sys.version_info >= (3, 13):
        return look(dict(frame.f_locals))
    if _reads_locals(code):
        return None
    # The frame keeps this dictionary, and with it whatever the names stand for now, as long as it lives: memory would be
    # held longer than the program holds it. So it is emptied, which changes no variable; a function that could itself look
    # at the dictionary is left alone.
    names = frame.f_locals
    try:
        return look(names)
    finally:
        names.clear()


def _reads_locals(code):
    """Say whether a function calls something that could give it the dictionary of its own names."""
    if not _READERS.intersection(code.co_names):
        return False
    import dis

    # The names of attributes are listed with those of functions, so `model.eval()` is not a call of `eval`.
    return any(
        step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in _READERS for step in dis.get_instructions(code)
    )

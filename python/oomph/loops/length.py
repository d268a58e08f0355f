"""Finds how long a loop would be, and whether its values are alike, from the object that it iterates over."""

from __future__ import annotations

import operator
import types

from oomph.looking import attribute, with_locals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ABSENT = object()
_MOST_LISTED = 64
"""A list of at most this many things is taken for a choice of different ones: sizes, folds, files."""


def length_of(iterable: Any, depth: int = 0) -> int | None:
    """How many iterations a loop over `iterable` makes; None where nothing says."""
    if depth > 6:
        return None
    try:
        return len(iterable)
    except Exception:
        # `__len__` of a dataset or a loader is code of the program's or a library's own.
        pass
    inner = inner_of(iterable)
    if inner is not None:
        return length_of(inner, depth + 1)
    total = attribute(iterable, "total")
    if isinstance(total, int):
        return total
    try:
        hint = operator.length_hint(iterable, -1)
    except Exception:
        # So is `__length_hint__`.
        return None
    return hint if hint >= 0 else None


def inner_of(iterable: object) -> Any:
    """What an `enumerate`, a progress bar or a generator method goes through, or None."""
    if isinstance(iterable, enumerate):
        return _reduced(iterable)
    if isinstance(iterable, zip):
        return _reduced(iterable)
    frame = attribute(iterable, "gi_frame")
    if isinstance(frame, types.FrameType):
        # A loader whose `__iter__` is a generator, such as Accelerate's.
        return _own_object(frame)
    found = attribute(iterable, "iterable")
    return found if found is not iterable else None


def _own_object(frame):
    """The `self` of a generator's frame; its other names, a batch among them, are not kept alive."""
    return with_locals(frame, lambda names: names.get("self"))


def _reduced(iterable):
    """The first iterator inside an `enumerate` or a `zip`; copying it would not advance it, and is not done."""
    try:
        inner = iterable.__reduce__()[1][0]
        return inner[0] if isinstance(inner, tuple) and inner else inner
    except Exception:
        # An iterator may refuse to be reduced, in words of its own.
        return None


def counted_range(iterable: object) -> range | None:
    """The range that a loop counts through, below progress bars; None where its values are more than numbers.

    A range that begins late or goes in strides is one of sizes or offsets, whose iterations differ.
    """
    for _ in range(4):
        if isinstance(iterable, range):
            return iterable if abs(iterable.step) == 1 and iterable.start in (0, 1) else None
        inner = inner_of(iterable)
        if inner is None or isinstance(iterable, (enumerate, zip)):
            return None
        iterable = inner
    return None


def source_of(iterable: object) -> Any:
    """What a loop goes through, below `enumerate`, progress bars and generator methods."""
    for _ in range(6):
        inner = inner_of(iterable)
        if inner is None:
            break
        iterable = inner
    return iterable


def gives_batches(iterable: object) -> bool:
    """Whether a loop over `iterable` goes through a loader of batches, of any library."""
    source = source_of(iterable)
    if isinstance(source, (list, tuple, dict, set, range, str, bytes)):
        return False
    kind = type(source).__name__
    both = (attribute(source, name, _ABSENT) is not _ABSENT for name in ("batch_size", "dataset"))
    return kind.endswith(("Loader", "LoaderIter")) or all(both)


def may_differ(iterable: object) -> bool:
    """Whether the values of a loop are chosen ones, each of which may need another amount of memory."""
    source = source_of(iterable)
    if isinstance(source, range):
        return counted_range(iterable) is None
    return isinstance(source, (list, tuple, set, frozenset, dict, str, bytes)) and len(source) <= _MOST_LISTED

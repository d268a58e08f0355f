"""Reads the rest of a loader of unknown length without computing with it, in search of larger batches.

A generator has no length, and nothing says that its batches grow: with the epoch, with a curriculum, by sorting. So
what is left of it is read for a short while. A batch that is larger than all before it is run like the others; the rest is
only counted, so that the optimizer steps of the whole program are known.
"""

from __future__ import annotations

import time

from oomph.looking import attribute, is_mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LONGEST = 2.0
"""Seconds that reading what is left of a loop may take."""
_DEEPEST = 4
_MOST_TEXTS = 1024
"""Members of a batch that are looked at for texts."""


class Skim:
    """The rest of one loop's batches."""

    def __init__(self, source: Iterator[Any], largest: int) -> None:
        self._source = source
        self._largest = largest
        self._seconds = 0.0
        self._run_next = False
        self.passed = 0
        """Batches that were read and not run since the last one that was."""
        self.is_over = False
        """Whether the loader has come to its end."""

    def next_larger(self) -> list[Any] | None:
        """The next batch that is larger than all before it, or the one after that, in a list.

        None where there is none, or the time is up.
        """
        began = time.perf_counter()
        self.passed = 0
        try:
            while self._seconds + time.perf_counter() - began < LONGEST:
                try:
                    batch = next(self._source)
                except StopIteration:
                    self.is_over = True
                    return None
                size = size_of(batch)
                if size > self._largest or self._run_next:
                    # The second of a size meets what the first has left in the cache.
                    self._run_next = size > self._largest
                    self._largest = max(size, self._largest)
                    return [batch]
                self.passed += 1
            return None
        finally:
            self._seconds += time.perf_counter() - began


def shapes_of(batch: object, depth: int = 0) -> list[Any]:
    """The shapes of the tensors and arrays of a batch, in their order."""
    shape = attribute(batch, "shape")
    if shape is not None:
        return [shape]
    if depth >= _DEEPEST:
        return []
    if is_mapping(batch):
        try:
            members = list(batch.values())
        except Exception:
            # The values of a mapping of the program's own may fail.
            return []
    elif isinstance(batch, (list, tuple)):
        members = list(batch[:256])
    else:
        return []
    return [found for one in members for found in shapes_of(one, depth + 1)]


def size_of(batch: object) -> int:
    """Elements of the tensors and arrays of a batch, or letters of its texts where these are more.

    A loop's body makes tensors of texts, padded to the longest. The names of images are few letters next to the images.
    """
    return max(_elements(batch, 0), text_of(batch))


def text_of(batch: object) -> int:
    """The letters of a batch of texts that are all padded to the longest; 0 where its tensors and arrays are more."""
    found: list[int] = []
    _lengths(batch, found, 0)
    padded = len(found) * max(found, default=0)
    return padded if padded > _elements(batch, 0) else 0


def _lengths(batch, found, depth):
    if isinstance(batch, (str, bytes)):
        found.append(len(batch))
    elif depth < _DEEPEST and isinstance(batch, (list, tuple, dict)):
        for one in list(batch.values() if isinstance(batch, dict) else batch)[:_MOST_TEXTS]:
            _lengths(one, found, depth + 1)


def _elements(batch: object, depth: int) -> int:
    shape = attribute(batch, "shape")
    if shape is not None:
        size = 1
        try:
            for extent in shape:
                size *= int(extent)
        except (TypeError, ValueError):
            return 0
        return size
    if depth >= _DEEPEST:
        return 0
    if is_mapping(batch):
        try:
            return sum(_elements(one, depth + 1) for one in batch.values())
        except Exception:
            # The values of a mapping of the program's own may fail.
            return 0
    if isinstance(batch, (list, tuple)):
        return sum(_elements(one, depth + 1) for one in batch)
    return 0

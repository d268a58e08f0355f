"""Remembers the batches that a loader makes of its samples, and gives one again for samples of the same shapes.

Where nobody knows how many batches a loader gives, or where they differ, its samples are drawn as in the whole program: they
alone say when it ends and how large a batch is. Padding and stacking them often takes longer than drawing them, and gives
what samples of the same shapes gave before.
"""

from __future__ import annotations

import functools
import os
import sys

from oomph import contents
from oomph.looking import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FETCHERS = "_MapDatasetFetcher", "_IterableDatasetFetcher"
_DEEPEST = 6
_MOST_BATCHES = 256
"""Batches that are remembered; samples of ever new shapes are put together each time."""

class _Unlike(Exception):
    """The shape of a batch may follow from the contents of a sample."""


class Collated:
    """The batches of samples that a loop's loaders have put together."""

    def __init__(self) -> None:
        self._batches: dict[Any, tuple[Any, list[Any]]] = {}
        self._held: dict[int, Any] = {}
        """Functions whose identity is a key, so that no other takes their place."""
        self._vary: set[Any] = set()
        """Shapes of samples that gave batches of several shapes."""

    def attach(
        self,
        undo: list[Callable[[], object]],
        replaces: Callable[[], bool | None],
        copied: Callable[[Any, list[Any]], Any],
    ) -> None:
        """Stand between loaders and what puts their samples together.

        `replaces` says whether batches are given again, or only remembered; None where neither. `copied` copies a batch without
        its tensors, and lists their shapes.
        """
        module = sys.modules.get("torch.utils.data._utils.fetch")
        for name in _FETCHERS:
            kind = attribute(module, name)
            if kind is not None:
                self._stand_before(kind, undo, replaces, copied)

    def _stand_before(self, kind, undo, replaces, copied):
        original = kind.fetch
        process = os.getpid()

        @functools.wraps(original)
        def fetch(fetcher, index):
            # A worker that was forked meanwhile loads for later iterations too, which may run with everything.
            if replaces() is None or os.getpid() != process:
                return original(fetcher, index)
            plain = fetcher.collate_fn
            fetcher.collate_fn = functools.partial(self._collate, plain, fetcher.dataset, replaces, copied)
            try:
                return original(fetcher, index)
            finally:
                fetcher.collate_fn = plain

        kind.fetch = fetch

        def restore():
            if kind.fetch is fetch:
                kind.fetch = original

        undo.append(restore)

    def _collate(self, plain, dataset, replaces, copied, samples):
        try:
            text_matters = attribute(plain, "__module__") != contents.PYTORCHS
            key = id(plain), _shapes(samples, text_matters, 0)
        except _Unlike:
            return plain(samples)
        torch = sys.modules["torch"]
        if isinstance(samples, list) and contents.decide(torch, plain, dataset, lambda: samples[:contents.TRIED]):
            return plain(samples)
        if replaces() and key in self._batches and key not in self._vary:
            return copied(self._batches[key][0], [])
        batch = plain(samples)
        if len(self._batches) >= _MOST_BATCHES and key not in self._batches:
            return batch
        shapes: list[Any] = []
        kept = copied(batch, shapes)
        if self._batches.setdefault(key, (kept, shapes))[1] != shapes:
            self._vary.add(key)
        self._held[id(plain)] = plain
        return batch

    def forget(self) -> None:
        """Drop what is remembered."""
        self._batches.clear()
        self._held.clear()
        self._vary.clear()


def _shapes(value, text_matters, depth):
    """What the shape of a batch can follow from: the shapes of the samples, and texts."""
    kind = type(value)
    if value is None or kind in (int, float, bool):
        return kind
    if kind in (str, bytes):
        return value if text_matters else kind
    if depth > _DEEPEST:
        raise _Unlike
    shape = attribute(value, "shape")
    if isinstance(shape, tuple):
        return kind, tuple(shape), attribute(value, "dtype")
    if kind in (list, tuple) or isinstance(value, tuple) and hasattr(kind, "_fields"):
        return (kind, *(_shapes(one, text_matters, depth + 1) for one in value))
    if kind is dict:
        return (kind, *((key, _shapes(one, text_matters, depth + 1)) for key, one in value.items()))
    raise _Unlike

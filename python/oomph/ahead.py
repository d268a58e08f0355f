"""Finds the longest batch that is still to come, from lengths that can be read.

A run that counts is not disturbed: no sample is made, so that a dataset that draws random numbers, counts its calls or reads
from a disk notices nothing. Lengths are read of `datasets.Dataset`, from its columns, and of lists of samples.
"""

from __future__ import annotations

import bisect
import functools
import weakref

from oomph import hook
from oomph.batches import allowed, measured, takes_any_together
from oomph.looking import is_mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Loader, Torch

_NAME = "input_ids"

_MISSED = 5
"""Longer samples than any seen are not believed in once so many should have come: the program cuts them, or leaves them out."""


class Follower:
    """Sees the batches that PyTorch's loaders give to a training, and knows what may still come of the last one."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self._known: Ahead | None = None
        self._loaders: weakref.WeakKeyDictionary[Loader, Ahead] = weakref.WeakKeyDictionary()
        """What is known of each loader. A loader that only a loop holds is gone before its first batch comes."""

    def attach(self) -> None:
        """Wait for PyTorch's loader."""
        hook.on_import("torch.utils.data.dataloader", self._watch)

    def tokens(self) -> tuple[int, int] | None:
        """The tokens of the longest batch so far, and of the longest that may come; None where that is not known."""
        return self._known.tokens() if self._known is not None else None

    def _watch(self, module):
        iterator, follower = module._BaseDataLoaderIter, self
        plain_init, plain_next = iterator.__init__, iterator.__next__

        @functools.wraps(plain_init)
        def __init__(self, loader, *args, **kwargs):
            # What is evaluated on says nothing of the training.
            self._oomph_ahead = hook.guarded(follower.begun, loader) if follower.torch.is_grad_enabled() else None
            plain_init(self, loader, *args, **kwargs)

        @functools.wraps(plain_next)
        def __next__(self):
            batch = plain_next(self)
            known = self.__dict__.get("_oomph_ahead")
            if known is not None and follower.torch.is_grad_enabled():
                hook.guarded(follower.delivered, known, batch)
            return batch

        iterator.__init__, iterator.__next__ = __init__, __next__

    def begun(self, loader: Loader) -> Ahead:
        """A loader begins to give batches; gives what is known of it."""
        if loader not in self._loaders:
            self._loaders[loader] = Ahead(self.torch, loader)
        return self._loaders[loader]

    def delivered(self, known: Ahead, batch: Any) -> None:
        """A loader gives a batch."""
        _, unit, shape = measured(self.torch, batch)
        if unit == "tokens":
            self._known = known
            known.delivered(shape)


class Ahead:
    """What is known of the batches of one loader: full ones, padded to their longest sample. Others are not judged."""

    def __init__(self, torch: Torch, loader: Loader) -> None:
        self._size, self._lengths = _lengths_drawn(torch, loader)
        self._seen = 0
        """The length of the longest batch so far."""
        self._drawn = 0
        """The samples of all batches so far."""

    def delivered(self, shape: list[int] | None) -> None:
        """A batch of this shape was given."""
        if shape is None or len(shape) != 2 or shape[0] > self._size:
            self._lengths = None
            return
        self._drawn += shape[0]
        if shape[0] == self._size:
            self._seen = max(self._seen, shape[1])

    def tokens(self) -> tuple[int, int] | None:
        """The tokens of the longest batch so far, and of the longest that may come; None where that is not known."""
        if not self._lengths or not self._seen or self._lengths[-1] <= self._seen:
            return None
        longer = len(self._lengths) - bisect.bisect_right(self._lengths, self._seen)
        if longer * self._drawn > _MISSED * len(self._lengths):
            return None
        return self._size * self._seen, self._size * self._lengths[-1]


def _lengths_drawn(torch, loader):
    """The size of a batch, and the sorted lengths of the samples that a loader draws from; 0 and None where not known."""
    sampler = getattr(loader, "batch_sampler", None)
    size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
    if not takes_any_together(sampler) or not size:
        return 0, None
    lengths = lengths_of(torch, loader.dataset)
    if not lengths:
        return 0, None
    return int(size), sorted(lengths[index] for index in allowed(loader, sampler, len(lengths)))


def lengths_of(torch: Torch, dataset: Any) -> list[int] | None:
    """The tokens of each sample, or None where they are to be had from the program's own code alone."""
    if type(dataset) is torch.utils.data.Subset:
        lengths = lengths_of(torch, dataset.dataset)
        return None if lengths is None else [lengths[index] for index in dataset.indices]
    if type(dataset) in (list, tuple):
        lengths = [_length(torch, sample) for sample in dataset]
        return None if None in lengths else lengths
    # `datasets.Dataset`, by what it can do.
    if _NAME not in (getattr(dataset, "column_names", None) or ()) or not hasattr(dataset, "with_format"):
        return None
    import pyarrow
    import pyarrow.compute

    column = dataset.with_format("arrow").select_columns([_NAME])[:].column(_NAME)
    if not (pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type)):
        return None
    return pyarrow.compute.fill_null(pyarrow.compute.list_value_length(column), 0).to_pylist()


def _length(torch, sample):
    if is_mapping(sample):
        sample = sample.get(_NAME)
    if type(sample) is torch.Tensor:
        return int(sample.numel()) if sample.dim() == 1 and not sample.is_floating_point() else None
    return len(sample) if type(sample) is list else None

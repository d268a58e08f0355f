"""Makes a program small enough to be computed on the host's processor, without another line of it being run.

Loaders give a few samples, with a last batch that is not full, and of many equal blocks in a row two are kept. What was cut is noted,
because the answer is about the smaller program.
"""

from __future__ import annotations

import functools
import itertools

from oomph import hook
from oomph.looking import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oomph._protocol import Compare
    from oomph._types import Torch

#: How many full batches an epoch has.
_FULL = 2
#: Of more equal blocks in a row than this only this many are kept.
_BLOCKS = 2


class Reduced:
    """What was cut in this process."""

    def __init__(self) -> None:
        #: Batch and samples of each loader, in the order in which they were made.
        self.loaders: list[tuple[int, int]] = []
        #: The most blocks that were cut from one place, and how many were there.
        self.blocks: dict[str, int] = {}


def install(torch: Torch, wanted: Compare) -> Reduced:
    """Cuts what is made from here on."""
    reduced = Reduced()
    hook.on_import("torch.utils.data", lambda data: _cut_loaders(data, wanted, reduced))
    if wanted["fewer_blocks"]:
        _cut_blocks(torch, reduced)
    return reduced


def _cut_loaders(data, wanted, reduced):
    kind = data.DataLoader
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self, dataset, batch_size=1, *args, **kwargs):
        if args:
            names = original.__code__.co_varnames[3 : 3 + len(args)]
            kwargs = {**dict(zip(names, args)), **kwargs}
        hook.guarded(_alone, kwargs)
        batch = _batch_of(batch_size, kwargs.get("batch_sampler"))
        if isinstance(batch_size, int) and kwargs.get("batch_sampler") is None:
            batch_size = batch = -(-batch_size // max(1, wanted["divide"]))
        number = len(reduced.loaders)
        given = wanted["samples"]
        count = given[number] if number < len(given) else few(batch)
        changed = hook.guarded(_cut, data, dataset, kwargs, count, batch)
        if changed is not None:
            dataset = changed
        original(self, dataset, batch_size, **kwargs)
        reduced.loaders.append((batch, count))

    kind.__init__ = __init__


def few(batch: int) -> int:
    """The samples of an epoch: two full batches, and one that is more than half full and not full."""
    return _FULL * batch + min(batch // 2 + 1, batch - 1)


def _alone(kwargs):
    """Loads in the process itself: workers give the same batches, and take longer to start than all of them to be computed."""
    if kwargs.get("num_workers"):
        kwargs["num_workers"] = 0
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout", "worker_init_fn"):
            kwargs.pop(name, None)


def _batch_of(batch_size, batch_sampler):
    if batch_sampler is not None:
        batch_size = attribute(batch_sampler, "batch_size")
    return batch_size if isinstance(batch_size, int) and batch_size > 0 else 1


def _cut(data, dataset, kwargs, count, batch):
    """A smaller data set, or the same one where the sampler was made smaller."""
    if kwargs.get("batch_sampler") is not None:
        kwargs["batch_sampler"] = Few(kwargs["batch_sampler"], -(-count // batch))
        return dataset
    if kwargs.get("sampler") is not None:
        kwargs["sampler"] = Few(kwargs["sampler"], count)
        return dataset
    if isinstance(dataset, data.IterableDataset):
        # PyTorch knows a stream by its class.
        return type("Few", (Few, data.IterableDataset), {})(dataset, count)
    if hasattr(dataset, "__len__") and len(dataset) > count:
        return Few(dataset, count)
    return dataset


class Few:
    """The first of something: a data set, a sampler."""

    def __init__(self, whole: Any, count: int) -> None:
        self._whole = whole
        self._count = count

    def __len__(self) -> int:
        try:
            return min(self._count, len(self._whole))
        except TypeError:
            # A stream does not know its length; whoever asks it is answered by the stream's own error.
            return len(self._whole)

    def __getitem__(self, index: Any) -> Any:
        return self._whole[index]

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._whole), self._count)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._whole, name)


def _cut_blocks(torch, reduced):
    nn = torch.nn
    listed, ordered = nn.ModuleList.__init__, nn.Sequential.__init__

    @functools.wraps(listed)
    def list_init(self, modules=None):
        if modules is not None:
            modules = _fewer(list(modules), reduced)
        listed(self, modules)

    @functools.wraps(ordered)
    def sequential_init(self, *modules):
        if len(modules) == 1 and isinstance(modules[0], dict):
            kept = _fewer(list(modules[0].values()), reduced)
            chosen = {name: module for name, module in modules[0].items() if any(module is one for one in kept)}
            ordered(self, type(modules[0])(chosen))
        else:
            ordered(self, *_fewer(list(modules), reduced))

    nn.ModuleList.__init__, nn.Sequential.__init__ = list_init, sequential_init


def _fewer(modules, reduced):
    """Modules without those that are like the two before them."""
    kept: list[Any] = []
    for likeness, row in itertools.groupby(modules, _likeness):
        alike = list(row)
        if likeness is not None and len(alike) > _BLOCKS:
            name = type(alike[0]).__name__
            reduced.blocks[name] = max(reduced.blocks.get(name, 0), len(alike))
            alike = alike[:_BLOCKS]
        kept.extend(alike)
    return kept


def _likeness(module):
    """What equal blocks have in common: their class and the sizes of their weights. None for what has no weights."""
    parameters = attribute(module, "named_parameters")
    if parameters is None:
        return None
    sizes = tuple((name, tuple(one.shape)) for name, one in parameters())
    return (type(module), sizes) if sizes else None

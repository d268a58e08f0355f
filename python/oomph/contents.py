"""Finds whether the size of a batch follows from what is in its samples: `max(s["n"] for s in samples)`, `mask.sum(1).max()`.

The shapes of samples then say nothing of the batches that they make. A collate function is tried: it gets the same samples
three times, once with smaller and once with larger numbers in the same shapes, and where its batches differ in size, or where it
fails, their size follows from the numbers.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random
import sys
import weakref

from oomph import longest
from oomph.looking import attribute, is_mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from oomph._types import Loader, Torch

    Change = Callable[[Any], Any]

PYTORCHS = "torch.utils.data._utils.collate"
"""Where PyTorch's own ways of putting samples together come from: no content of a sample changes a shape there."""
TRIED = 4
"""Samples that are put together in a trial."""
_SPREAD = 16
"""Samples of a dataset whose shapes are compared."""
_DEEPEST = 6
_MOST_REMEMBERED = 64

_known: dict[tuple[int, int], tuple[Any, Any, bool]] = {}
"""What was found of a collate function and a dataset, by their identities. The function is held so that no other takes its place;
a dataset may be large, and is looked up."""


def undisturbed(torch: Torch, function: Callable[[], Any], failed: Any = None) -> Any:
    """Call a function and leave the random numbers that the program draws as they were; `failed` where it raises."""
    numpy = sys.modules.get("numpy")
    state = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy is not None else None
    try:
        return function()
    except Exception:
        # A dataset that cannot be read in this order, or a collate function that wants other samples.
        return failed
    finally:
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        if numpy is not None:
            numpy.random.set_state(state[2])


def decide(torch: Torch, collate: Any, dataset: Any, samples: Callable[[], Sequence[Any]]) -> bool:
    """Whether the size of the batches that a function makes of a dataset follows from what is in the samples.

    `samples` gives some of them.
    """
    if attribute(collate, "__module__") == PYTORCHS:
        return False
    key = id(collate), id(dataset)
    known = _known.get(key)
    if known is None or known[1] is not None and known[1]() is not dataset:
        if len(_known) >= _MOST_REMEMBERED:
            _known.clear()
        # A function that fails may be one that wants what was not tried.
        found = undisturbed(torch, lambda: _differ(torch, collate, samples()), failed=True)
        known = _known[key] = collate, _reference(dataset), found
    return known[2]


def _reference(dataset):
    try:
        return weakref.ref(dataset)
    except TypeError:
        # A list cannot be referred to so, and is known by its identity alone: held, it would keep tensors.
        return None


def of_loader(torch: Torch, loader: Loader) -> bool:
    """The same for a loader or an iterator of it; False where its samples cannot be had by number, or are not put together."""
    dataset, collate = _parts(loader)
    if dataset is None:
        return False
    return decide(torch, collate, dataset, lambda: [dataset[index] for index in range(min(TRIED, len(dataset)))])


def may_vary(torch: Torch, loader: Loader) -> bool:
    """Whether a loader may give batches of several sizes, by the shapes of samples spread over its dataset or by their contents."""
    dataset, _ = _parts(loader)
    if dataset is None:
        return False

    def shapes_differ():
        spread = itertools.islice(longest.spread(range(len(dataset))), _SPREAD)
        extents = [longest.extents(torch, dataset[index]) for index in spread]
        return any(one != extents[0] for one in extents)

    return of_loader(torch, loader) or bool(undisturbed(torch, shapes_differ))


def _parts(loader):
    """The dataset and the collate function of a loader of PyTorch's, or of its iterator."""
    if not attribute(loader, "_auto_collation"):
        return None, None
    dataset = attribute(loader, "dataset", attribute(loader, "_dataset"))
    collate = attribute(loader, "collate_fn", attribute(loader, "_collate_fn"))
    if hasattr(type(dataset), "__getitem__") and hasattr(type(dataset), "__len__") and callable(collate):
        return dataset, collate
    return None, None


def _differ(torch, collate, samples):
    # A function may change the samples that it gets.
    plain, less, more = (
        _sizes(torch, collate([_changed(sample, change, 0) for sample in samples]))
        for change in (lambda value: value, lambda value: _less(torch, value), lambda value: _more(torch, value))
    )
    return less != plain or more != plain


def _sizes(torch, batch):
    return [_size(leaf) for leaf in longest.leaves(torch, batch, opened=True)]


def _size(leaf):
    shape = attribute(leaf, "shape")
    return tuple(shape) if isinstance(shape, tuple) else len(leaf) if isinstance(leaf, (list, tuple)) else None


def _changed(value, change, depth):
    """A sample with other numbers, in containers of its own."""
    kind = type(value)
    if depth > _DEEPEST:
        return value
    if kind in (list, tuple):
        return kind(_changed(one, change, depth + 1) for one in value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind(*(_changed(one, change, depth + 1) for one in value))
    if kind is dict:
        return {key: _changed(one, change, depth + 1) for key, one in value.items()}
    held = attribute(value, "data")
    if is_mapping(value) and isinstance(held, dict):
        # A dictionary in a class of its own, such as a tokenizer's.
        made: Any = copy.copy(value)
        made.data = _changed(held, change, depth + 1)
        return made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for name, one in vars(value).items():
            object.__setattr__(made, name, _changed(one, change, depth + 1))
        return made
    return change(value)


def _less(torch, value):
    """A smaller number than a positive one, and not zero: a loop may go by it."""
    kind = type(value)
    if kind is bool:
        return False
    if kind is int:
        return value // 2 if value > 1 else value
    if kind is float:
        return value / 2
    return _array(torch, value, lambda one, where: where(one > 1, one // 2, one), lambda one: one / 2, False)


def _more(torch, value):
    kind = type(value)
    if kind is bool:
        return True
    if kind in (int, float):
        # Numbers below zero stand for what is to be left out.
        return value * 2 + 64 if value >= 0 else value
    return _array(torch, value, lambda one, where: where(one >= 0, one * 2 + 64, one), lambda one: one * 2 + 64, True)


def _array(torch, value, whole, real, flag):
    """A tensor or an array of other numbers, in the same shape and type."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            return value
        if value.dtype == torch.bool:
            return torch.full_like(value, flag)
        if value.is_floating_point():
            return real(value.detach())
        return value if value.is_complex() else whole(value, torch.where).to(value.dtype)
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        return value
    kind = value.dtype.kind
    if kind == "b":
        return numpy.full_like(value, flag)
    if kind in "iu":
        return whole(value, numpy.where).astype(value.dtype)
    return real(value).astype(value.dtype) if kind == "f" else value


def numbers(torch: Torch, sample: object) -> dict[str, int]:
    """The numbers of a sample from which a length may follow, by where they are: the values, the largest of an array, their sum."""
    found: dict[str, int] = {}
    for name, value in _numbered(sample, "", 0):
        if type(value) in (int, float) and value == value and 0 <= value < 1 << 40:
            found[name] = int(value)
            continue
        if isinstance(value, torch.Tensor) and not value.is_cuda and value.numel() and not value.is_complex():
            array = value if value.dtype != torch.bool else value.int()
            found[name + ".max"], found[name + ".sum"] = (_whole(one) for one in (array.max(), array.sum()))
        elif attribute(attribute(value, "dtype"), "kind") in ("b", "i", "u", "f") and attribute(value, "size"):
            found[name + ".max"], found[name + ".sum"] = (_whole(one) for one in (value.max(), value.sum()))
        elif isinstance(value, (list, tuple)) and all(type(one) in (int, float, bool) for one in value) and value:
            found[name + ".max"], found[name + ".sum"] = _whole(max(value)), _whole(sum(value))
    return found


def _whole(value):
    number = float(value)
    return int(number) if number == number and 0 <= number < 1 << 40 else 0


def _numbered(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _DEEPEST:
        return
    if is_mapping(value):
        members = list(value.items())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = list(vars(value).items())
    elif isinstance(value, (list, tuple)) and not (value and isinstance(value[0], (int, float))):
        members = list(enumerate(value[:32]))
    elif isinstance(value, (list, tuple)) and len(value) <= 4 and depth < 2:
        # A pair of an image's number and its length, and not a row of tokens.
        yield name, value
        members = list(enumerate(value))
    else:
        yield name, value
        return
    for key, one in members:
        yield from _numbered(one, "%s/%s" % (name, key), depth + 1)

"""Runs operations whose result has a size that depends on values.

CUDA's own kernels would read that size back from memory that nothing wrote.  So it is worked out on the host first, and
the result is made of that size.  Where the values are unknown the result is the largest there can be: every element
selected, every value distinct.  Too much memory is the safe side of a prediction.  The record gets both ends of each
such size, and a run at the other end (`unknown_sizes` "least") shows whether the verdict depends on it.
"""

from __future__ import annotations

import math

from oomph.values.unknown import BLANK, GUESS, KNOWN, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from oomph._types import Tensor
    from oomph.values.kernels import Kernels
    from oomph.values.operations import Operation

#: Above this many elements a tensor is not read even where its values are known (an expanded one is read element by
#: element, and a host does some hundred million a second). Masks are counted without their expanded dimensions.
_READ_AT_MOST = 1 << 26


def _native(operation, args, kwargs):
    return operation.call(*args, **kwargs)


def _ready(kernels, *tensors):
    """Whether any of these is on the device, and values may be worked with at all."""
    for tensor in tensors:
        if tensor is not None and kernels.on_device(tensor):
            return kernels.usable(tensor)
    return False


def _level(kernels, *tensors):
    worst = KNOWN
    for tensor in tensors:
        if tensor is not None and kernels.on_device(tensor):
            level = kernels.unknowns.level(tensor)
            worst = max(worst, UNKNOWN if level == BLANK else level)
            if tensor.numel() > _READ_AT_MOST:
                worst = UNKNOWN
    return worst


#: What is taken for a size that depends on values, as the report says it.
_ALL = "all are taken, the most there can be"
_ONE = "one is taken, next to the least there can be"
_DISTINCT = "each value is taken to be another, the most there can be"
_ONCE = "each is taken once, and the peak may differ"
_NONE = "none are taken, as of healthy input"
_GUESSED = "a guess is taken for it, and the peak may differ"


def _few_outliers():
    """Whether the caller is a library in which next to nothing is selected on healthy input.

    LLM.int8 looks for the few columns with outliers.  "All of them" would be the largest guess and far from the truth.
    """
    import sys

    frame: FrameType | None = sys._getframe(1)
    for _ in range(12):
        if frame is None:
            return False
        if "/bitsandbytes/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _place(kernels, like, made, level):
    """A result of the CPU as a tensor on the device; only results that are small have their values written."""
    torch = kernels.torch
    out = torch.empty_strided(made.size(), made.stride(), dtype=made.dtype, device=like.device)
    if not kernels.large(out):
        if out.numel():
            kernels.memory.alias(out).copy_(made)
        kernels.unknowns.note(out, level)
    return out


def _blank(kernels, like, shape, dtype, level=UNKNOWN):
    """A result without values."""
    out = kernels.torch.empty(shape, dtype=dtype, device=like.device)
    if not kernels.large(out):
        kernels.standins.fill(out, level)
    return out


def _positions(kernels, operation, mask, expected=None, at_most=None):
    """`nonzero` of a tensor on the device, with CUDA's strides, on the device.

    `expected` is the count where the program fixes it, `at_most` a bound that the program sets. Both hold only where
    the mask itself cannot be counted.
    """
    torch = kernels.torch
    dims = mask.dim()
    level = _level_of(kernels, mask)
    level = UNKNOWN if level == BLANK else level
    # CUDA counts first and then selects; both need a few bytes of scratch memory.
    scratch = torch.empty((1,), dtype=torch.int32, device=mask.device)
    del scratch
    if level <= GUESS:
        count = _counted(kernels, mask)
        if level:
            kernels.warn.selected(_GUESSED)
    elif expected is not None:
        # A program that assigns so many counts on as many, so that there is nothing to guess.
        count = expected
    else:
        most = mask.numel() if at_most is None else min(at_most, mask.numel())
        count = _taken(kernels, operation, most)
    # CUDA writes one row per dimension and hands out the transpose.
    rows = torch.empty((dims, count), dtype=torch.int64, device=mask.device)
    if not kernels.large(rows):
        if level <= GUESS:
            if count:
                kernels.memory.alias(rows).copy_(kernels.memory.alias(mask).nonzero().t())
            kernels.unknowns.note(rows, level)
        else:
            host = kernels.memory.alias(rows)
            host.zero_()
            if dims and count and count == mask.numel():
                everything = torch.arange(count, dtype=torch.int64, device="cpu")
                for dim in range(dims - 1, -1, -1):
                    host[dim].copy_(everything % mask.size(dim))
                    everything = everything // mask.size(dim)
            kernels.unknowns.note(rows, GUESS)
    return rows.t()


def _counted(kernels, mask):
    """How many elements of a mask are set. A dimension that is expanded holds the same everywhere and is read once."""
    seen, times = kernels.memory.alias(mask), 1
    for dim, (size, stride) in enumerate(zip(mask.size(), mask.stride())):
        if stride == 0 and size > 1:
            seen, times = seen.narrow(dim, 0, 1), times * size
    return int(seen.count_nonzero()) * times


def _taken(kernels, operation, most, what=_ALL):
    """How many of at most `most` elements are taken to be in a result whose size was never computed.

    The low end is one element: none at all takes no less memory, and much code refuses an empty tensor.
    """
    if _few_outliers():
        kernels.warn.selected(_NONE)
        return 0
    least = kernels.unknown_sizes == "least"
    taken = min(1, most) if least else most
    kernels.warn.unknown_size(operation.base, most, taken, _ONE if least else what)
    return taken


def nonzero(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`nonzero`, and with it `argwhere` and one-argument `where`."""
    source = args[0]
    if not _ready(kernels, source):
        return _native(operation, args, kwargs)
    return _positions(kernels, operation, source)


def _without_masks(kernels, operation, subject, indices, values=None):
    """Indices in which every mask on the device is replaced by the positions it selects."""
    torch = kernels.torch
    masks = (torch.bool, torch.uint8)
    if not any(one is not None and one.dtype in masks and kernels.on_device(one) for one in indices):
        return None
    made = []
    for one in indices:
        if one is None or one.dtype not in masks or not kernels.on_device(one):
            made.append(one)
            continue
        expected = None
        if values is not None and values.dim() == subject.dim() - one.dim() + 1:
            # What is assigned says how much is selected.
            length = values.size(len(made))
            expected = length if length != 1 else None
        rows = _positions(kernels, operation, one, expected)
        made.extend(rows.select(1, dim) for dim in range(one.dim()))
    return made


def _one_value(kernels, indices, values, accumulate):
    """Whether CUDA turns the assignment into `masked_fill`, which needs no positions."""
    if accumulate or values.numel() != 1:
        return False
    masks = [one for one in indices if one is not None]
    return len(masks) == 1 and masks[0].dtype in (kernels.torch.bool, kernels.torch.uint8)


def index(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Indexing with masks."""
    subject, indices = args[0], args[1]
    if _ready(kernels, subject):
        made = _without_masks(kernels, operation, subject, indices)
        if made is not None:
            args = (subject, made) + tuple(args[2:])
    out = _native(operation, args, kwargs)
    return kernels.finish(operation, args, kwargs, out)


def index_put(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Assignment through masks, and the backward of indexing with them."""
    subject, indices, values = args[0], args[1], args[2]
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if _ready(kernels, subject):
        made = None
        if not _one_value(kernels, indices, values, accumulate):
            made = _without_masks(kernels, operation, subject, indices, values)
        if made is not None:
            args = (subject, made) + tuple(args[2:])
    out = _native(operation, args, kwargs)
    return kernels.finish(operation, args, kwargs, out)


def masked_select(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`masked_select`, which CUDA does as indexing with the broadcast mask."""
    subject, mask = args[0], args[1]
    if not _ready(kernels, subject, mask):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    if mask.dim() == 0 and subject.dim() == 0:
        subject, mask = subject.reshape(1), mask.reshape(1)
    shape = torch.broadcast_shapes(subject.size(), mask.size())
    wide, over = subject.expand(shape), mask.expand(shape)
    level = _level(kernels, mask)
    worst = max(level, kernels.unknowns.level(subject))
    out = _selected(kernels, operation, wide, over)
    if kernels.large(out) or not out.numel():
        return out
    if worst <= GUESS:
        memory = kernels.memory
        memory.alias(out).copy_(torch.masked_select(memory.alias(wide), memory.alias(over)))
        kernels.unknowns.note(out, worst)
    else:
        kernels.standins.fill(out, UNKNOWN)
    return out


def _selected(kernels, operation, wide, over, at_most=None):
    """What a mask selects, of its own shape, as CUDA makes it; without its values."""
    rows = _positions(kernels, operation, over, at_most=at_most)
    return kernels.torch.ops.aten.index.Tensor(wide, [rows.select(1, dim) for dim in range(over.dim())])


def masked_scatter_backward(
    kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """What the source of `masked_scatter` gets: as many elements as were taken from it, filled up with zeros."""
    grad, mask, sizes = args
    if not _ready(kernels, grad, mask):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    wanted = math.prod(sizes)
    shape = torch.broadcast_shapes(grad.size(), mask.size())
    wide, over = grad.expand(shape), mask.expand(shape)
    if over.dim() == 0:
        wide, over = wide.reshape(1), over.reshape(1)
    # No more was selected in the forward than the source had.
    out = _selected(kernels, operation, wide, over, at_most=wanted)
    if out.numel() < wanted:
        zeros = torch.zeros((wanted - out.numel(),), dtype=out.dtype, device=out.device)
        out = torch.cat((out, zeros))
        del zeros
    return kernels.finish(operation, args, kwargs, out.view(sizes))


def unique(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
    """The family of `unique`: values, where each element went, how often each occurs."""
    source = args[0]
    if not _ready(kernels, source):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    named = dict(zip(operation.arguments, args))
    named.update(kwargs)
    level = _level(kernels, source)
    if level == GUESS:
        kernels.warn.selected(_GUESSED)
    # CUDA sorts a copy, and with the inverse asked for, the positions with it.
    scratch = [torch.empty(source.size(), dtype=source.dtype, device=source.device)]
    if named.get("return_inverse"):
        scratch.append(torch.empty(source.size(), dtype=torch.int64, device=source.device))
    if level <= GUESS:
        made = operation.host_call(kernels.memory.alias(source), *args[1:], **kwargs)
        out = tuple(_place(kernels, source, one, level) for one in made)
        del scratch
        return out
    dim = named.get("dim")
    most = source.numel() if dim is None else source.size(dim)
    count = _taken(kernels, operation, most, _DISTINCT)
    shape = [count]
    if dim is not None:
        shape = list(source.size())
        shape[dim] = count
    results = [_blank(kernels, source, shape, source.dtype)]
    inverse = source.size() if dim is None else (most,)
    for name in ("return_inverse", "return_counts"):
        if name == "return_counts" and name not in operation.arguments:
            break
        size = (inverse if name == "return_inverse" else (count,)) if named.get(name) else (0,)
        results.append(_blank(kernels, source, size, torch.int64))
    del scratch
    return tuple(results)


def repeat_interleave(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`repeat_interleave` with a tensor of counts."""
    source = args[0]
    if not _ready(kernels, source):
        return _native(operation, args, kwargs)
    wanted = kwargs.get("output_size")
    level = kernels.unknowns.level(source)
    if level <= GUESS:
        made = operation.host_call(kernels.memory.alias(source), **kwargs)
        if level:
            kernels.warn.selected(_GUESSED)
        return _place(kernels, source, made, level)
    if wanted is None:
        kernels.warn.selected(_ONCE)
        wanted = source.numel()
    return _blank(kernels, source, (wanted,), source.dtype)


def bincount(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`bincount`: as long as the largest value."""
    source = args[0]
    if not _ready(kernels, source):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    named = dict(zip(operation.arguments, args))
    named.update(kwargs)
    weights = named.get("weights")
    level = _level(kernels, source)
    if level:
        # As long as the largest value, which is no smaller than what is asked for.
        kernels.warn.selected(_GUESSED)
    if level <= GUESS and not kernels.large(source):
        host = [kernels.arithmetic.host(one) for one in args]
        made = operation.host_call(*host, **{name: kernels.arithmetic.host(one) for name, one in kwargs.items()})
        return _place(kernels, source, made, max(level, _level_of(kernels, weights)))
    dtype = torch.int64 if weights is None else (weights.dtype if weights.dtype == torch.float32 else torch.float64)
    return _blank(kernels, source, (max(1, int(named.get("minlength") or 0)),), dtype)


def _level_of(kernels, tensor):
    if tensor is None or not kernels.on_device(tensor):
        return KNOWN
    return kernels.unknowns.level(tensor)


def histc(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`histc`: without bounds CUDA reads the smallest and largest value back, and refuses what is not finite."""
    source = args[0]
    named = dict(zip(operation.arguments, args))
    named.update(kwargs)
    low, high = named.get("min", 0), named.get("max", 0)
    if not _ready(kernels, source) or low != high:
        out = _native(operation, args, kwargs)
        return kernels.finish(operation, args, kwargs, out)
    low, high = 0, 1
    if source.numel() and not kernels.large(source) and kernels.unknowns.level(source) <= GUESS:
        alias = kernels.memory.alias(source)
        low, high = float(alias.min().item()), float(alias.max().item())
        if not low < high:
            low, high = low - 1, low + 1
    args = (source, named.get("bins", 100), low, high)
    out = operation.call(*args)
    return kernels.finish(operation, args, {}, out)


def drawn(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """`multinomial` over unknown probabilities; None where they are known.

    CUDA's checks that they add up to something, which zeros do not.
    """
    source = args[0]
    if not _ready(kernels, source):
        return None
    if not kernels.large(source) and _level_of(kernels, source) <= GUESS:
        return None
    torch = kernels.torch
    # The draw divides by exponentially distributed numbers, one per probability.
    scratch = torch.empty_like(source)
    count = args[1]
    out = torch.empty(tuple(source.size())[:-1] + (count,), dtype=torch.int64, device=source.device)
    del scratch
    if not kernels.large(out):
        kernels.standins.drawn(operation, source, out)
    return out


def nms(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """torchvision's `nms`: which boxes survive."""
    boxes, scores = args[0], args[1]
    if not _ready(kernels, boxes):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    level = _level(kernels, boxes, scores)
    if level == GUESS:
        kernels.warn.selected(_GUESSED)
    if level <= GUESS:
        host = [kernels.arithmetic.host(one) for one in args]
        made = operation.host_call(*host, **kwargs)
        return _place(kernels, boxes, made, level)
    count = _taken(kernels, operation, boxes.size(0))
    out = torch.empty((count,), dtype=torch.int64, device=boxes.device)
    if not kernels.large(out):
        kernels.memory.alias(out).copy_(torch.arange(count, dtype=torch.int64, device="cpu"))
        kernels.unknowns.note(out, GUESS)
    return out


ATEN = {
    "nonzero": nonzero,
    "index.Tensor": index,
    "_unsafe_index.Tensor": index,
    "index_put_": index_put,
    "index_put": index_put,
    "_index_put_impl_": index_put,
    "_unsafe_index_put": index_put,
    "masked_select": masked_select,
    "masked_scatter_backward": masked_scatter_backward,
    "_unique": unique,
    "_unique2": unique,
    "unique_dim": unique,
    "unique_consecutive": unique,
    "unique_dim_consecutive": unique,
    "repeat_interleave.Tensor": repeat_interleave,
    "bincount": bincount,
    "histc": histc,
}

OTHERS = {"torchvision::nms": nms}

#: Of these only the arguments are exchanged, so that what writes to a given tensor is dealt with like the others.
_BY_ARGUMENTS = (index, index_put)


def function_for(name: str) -> Callable[[Kernels, Operation, tuple[Any, ...], dict[str, Any]], Any] | None:
    """What deals with an operator of ATEN, named like `index.Tensor_out`; None where its size is known beforehand."""
    found = ATEN.get(name)
    base, _, overload = name.partition(".")
    if found is not None or not overload.endswith("out"):
        return found
    plain = base + (overload[:-4] and "." + overload[:-4])
    found = ATEN.get(plain)
    return found if found is None or found in _BY_ARGUMENTS else _writing(found, "aten::" + plain)


def _writing(function, name):
    """The form of an operation that writes its results to the caller's tensors, which take on their sizes."""
    plain = None

    def written(kernels, operation, args, kwargs):
        nonlocal plain
        if not _ready(kernels, args[0]):
            return _native(operation, args, kwargs)
        if plain is None:
            plain = kernels.operation(name)
        given = {argument for _, argument in operation.mutated}
        into = [kwargs[argument] for argument in operation.arguments if argument in given]
        rest = {argument: value for argument, value in kwargs.items() if argument not in given}
        made = function(kernels, plain, args, rest)
        for out, one in zip(into, made if isinstance(made, tuple) else (made,)):
            if out.size() != one.size():
                out.resize_(one.size())
            if out.numel() and not kernels.large(out):
                kernels.memory.alias(out).copy_(kernels.memory.alias(one))
                kernels.unknowns.change(out, kernels.unknowns.level(one))
        return into[0] if len(into) == 1 else tuple(into)

    return written

"""Operations whose result has a size that depends on values.

CUDA's own kernels would read that size back from memory that nothing wrote.  So it is worked out on the host first, and
the result is made of that size.  Where the values are unknown the guess is the largest result there can be: every
element selected, every value distinct.  Too much memory is the safe side of a prediction, and the report says so.
"""

from oomph.values.unknown import BLANK, GUESS, KNOWN, UNKNOWN

#: Above this many elements a mask is not read even where its values are known (an expanded mask is read element by
#: element, and a host does some hundred million a second).
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
_ONCE = "each is taken once, and the peak may differ"
_NONE = "none are taken, as of healthy input"
_GUESSED = "a guess is taken for it, and the peak may differ"


def _few_outliers():
    """Whether the caller is a library in which next to nothing is selected on healthy input.

    LLM.int8 looks for the few columns with outliers.  "All of them" would be the largest guess and far from the truth.
    """
    import sys

    frame = sys._getframe(1)
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


def _positions(kernels, mask, expected=None):
    """`nonzero` of a tensor on the device, with CUDA's strides, on the device."""
    torch = kernels.torch
    dims = mask.dim()
    level = _level(kernels, mask)
    # CUDA counts first and then selects; both need a few bytes of scratch memory.
    scratch = torch.empty((1,), dtype=torch.int32, device=mask.device)
    del scratch
    count = None
    if level <= GUESS:
        found = kernels.memory.alias(mask).nonzero()
        count = found.size(0)
        if level:
            kernels.warn.selected(_GUESSED)
    elif expected is not None:
        # A program that assigns so many counts on as many, so that there is nothing to guess.
        count = expected
    elif _few_outliers():
        count = 0
        kernels.warn.selected(_NONE)
    else:
        count = mask.numel()
        kernels.warn.selected(_ALL)
    # CUDA writes one row per dimension and hands out the transpose.
    rows = torch.empty((dims, count), dtype=torch.int64, device=mask.device)
    if not kernels.large(rows):
        if level <= GUESS:
            kernels.memory.alias(rows).copy_(found.t())
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


def nonzero(kernels, operation, args, kwargs):
    """`nonzero`, and with it `argwhere` and one-argument `where`."""
    source = args[0]
    if not _ready(kernels, source):
        return _native(operation, args, kwargs)
    return _positions(kernels, source)


def _without_masks(kernels, subject, indices, values=None):
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
        rows = _positions(kernels, one, expected)
        made.extend(rows.select(1, dim) for dim in range(one.dim()))
    return made


def _one_value(kernels, indices, values, accumulate):
    """Whether CUDA turns the assignment into `masked_fill`, which needs no positions."""
    if accumulate or values.numel() != 1:
        return False
    masks = [one for one in indices if one is not None]
    return len(masks) == 1 and masks[0].dtype in (kernels.torch.bool, kernels.torch.uint8)


def index(kernels, operation, args, kwargs):
    """Indexing with masks."""
    subject, indices = args[0], args[1]
    if _ready(kernels, subject):
        made = _without_masks(kernels, subject, indices)
        if made is not None:
            args = (subject, made) + tuple(args[2:])
    out = _native(operation, args, kwargs)
    return kernels.finish(operation, args, kwargs, out)


def index_put(kernels, operation, args, kwargs):
    """Assignment through masks, and the backward of indexing with them."""
    subject, indices, values = args[0], args[1], args[2]
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if _ready(kernels, subject):
        made = None
        if not _one_value(kernels, indices, values, accumulate):
            made = _without_masks(kernels, subject, indices, values)
        if made is not None:
            args = (subject, made) + tuple(args[2:])
    out = _native(operation, args, kwargs)
    return kernels.finish(operation, args, kwargs, out)


def masked_select(kernels, operation, args, kwargs):
    """`masked_select`, which CUDA does as indexing with the broadcast mask."""
    subject, mask = args[0], args[1]
    if not _ready(kernels, subject, mask):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    if mask.dim() == 0 and subject.dim() == 0:
        subject, mask = subject.reshape(1), mask.reshape(1)
    shape = torch.broadcast_shapes(subject.size(), mask.size())
    wide, over = subject.expand(shape), mask.expand(shape)
    if kernels.large(over) or kernels.large(wide):
        rows = _positions(kernels, over)
        return torch.ops.aten.index.Tensor(wide, [rows.select(1, dim) for dim in range(over.dim())])
    level = _level(kernels, mask)
    worst = max(level, kernels.unknowns.level(subject))
    rows = _positions(kernels, over)
    out = torch.ops.aten.index.Tensor(wide, [rows.select(1, dim) for dim in range(over.dim())])
    if not kernels.large(out) and out.numel():
        if level <= GUESS:
            memory = kernels.memory
            memory.alias(out).copy_(torch.masked_select(memory.alias(wide), memory.alias(over)))
            kernels.unknowns.note(out, worst)
        else:
            kernels.standins.fill(out, UNKNOWN)
    return out


def unique(kernels, operation, args, kwargs):
    """The family of `unique`: values, where each element went, how often each occurs."""
    source = args[0]
    if not _ready(kernels, source):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    named = dict(zip(operation.arguments, args))
    named.update(kwargs)
    level = _level(kernels, source)
    if level:
        kernels.warn.selected(_GUESSED if level <= GUESS else _ALL)
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
    count = source.numel() if dim is None else source.size(dim)
    shape = (count,) if dim is None else source.size()
    out = [_blank(kernels, source, shape, source.dtype)]
    inverse = source.size() if dim is None else (count,)
    for name in ("return_inverse", "return_counts"):
        if name == "return_counts" and name not in operation.arguments:
            break
        size = (inverse if name == "return_inverse" else (count,)) if named.get(name) else (0,)
        out.append(_blank(kernels, source, size, torch.int64))
    del scratch
    return tuple(out)


def repeat_interleave(kernels, operation, args, kwargs):
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


def bincount(kernels, operation, args, kwargs):
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


def histc(kernels, operation, args, kwargs):
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


def drawn(kernels, operation, args, kwargs):
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
        kernels.standins.positions(operation, (source,), {}, (out,))
    return out


def nms(kernels, operation, args, kwargs):
    """torchvision's `nms`: which boxes survive."""
    boxes, scores = args[0], args[1]
    if not _ready(kernels, boxes):
        return _native(operation, args, kwargs)
    torch = kernels.torch
    level = _level(kernels, boxes, scores)
    if level:
        kernels.warn.selected(_GUESSED if level <= GUESS else _ALL)
    if level <= GUESS:
        host = [kernels.arithmetic.host(one) for one in args]
        made = operation.host_call(*host, **kwargs)
        return _place(kernels, boxes, made, level)
    out = torch.empty((boxes.size(0),), dtype=torch.int64, device=boxes.device)
    if not kernels.large(out):
        kernels.memory.alias(out).copy_(torch.arange(boxes.size(0), dtype=torch.int64, device="cpu"))
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

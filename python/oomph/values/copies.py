"""Kernels of operations that carry values between host and device."""

from __future__ import annotations

from oomph.values import memory
from oomph.values.unknown import BLANK, KNOWN, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oomph._types import Tensor
    from oomph.values.kernels import Kernels
    from oomph.values.operations import Operation

#: Tensors of the host that are fewer bytes in all are joined as usual.
JOINED_BYTES = 64 << 20


def read_back(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()`: the value is in memory already; what matters is whether anyone computed it."""
    source = args[0]
    level = kernels.unknowns.level(source) if kernels.on_device(source) and kernels.usable(source) else KNOWN
    if level == BLANK:
        # Where the allocator is followed nothing that was seen has written there; else somebody may have, long ago.
        level = UNKNOWN if kernels.unknowns.of.followed else KNOWN
    if level:
        if source.dtype in kernels.floats:
            kernels.warn.read()
        else:
            healthy = kernels.warn.flag(level) if source.dtype == kernels.torch.bool else None
            if healthy is not None:
                return healthy
            kernels.warn.branched()
    return operation.call(*args, **kwargs)


def lifted(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`torch.tensor(..., device="cuda")` copies out of sight and shows its result here."""
    out = operation.call(*args, **kwargs)
    if kernels.on_device(out) and not kernels.large(out) and kernels.plain(out):
        kernels.unknowns.note(out, KNOWN)
    return out


def copied(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Copies between host and device.

    The virtual GPU carries out plain ones up to a megabyte.  Those that convert or rearrange go through kernels, or
    through a temporary that a kernel fills, and are done here.
    """
    if operation.base == "copy_" and _is_staging(kernels, args[0], args[1]):
        size = args[0].numel() * args[0].element_size()
        if memory.copy_present(args[0].data_ptr(), args[1].data_ptr(), size):
            return args[0]
    out = operation.call(*args, **kwargs)
    source = args[1] if operation.base == "copy_" else args[0]
    to_device, from_device = kernels.on_device(out), kernels.on_device(source)
    if to_device and from_device:
        count = out.numel()
        if count > kernels.limit and (count > kernels.limit_bytes or out.dtype in kernels.floats):
            return out
        try:
            if kernels.with_quick_ways and kernels.copied_quickly[operation.base](out, source):
                return out
        except Exception:
            # The long way says what is the matter.
            pass
        return kernels.finish(operation, args, kwargs, out)
    if not to_device and not from_device:
        return out
    try:
        _between(kernels, out, source, to_device, operation.base != "copy_")
    except Exception:
        # The copy itself has succeeded; what is missing is only its value.
        operation.failures += 1
    return out


def joined(kernels: Kernels, tensors: Sequence[Tensor], dim: int = 0) -> Tensor | None:
    """Large tensors of the host, one after the other, as empty as they are: what they hold came from the card, and most
    of it was never written. None where they are not such.
    """
    first = tensors[0]
    size = sum(tensor.numel() for tensor in tensors) * first.element_size()
    if size <= JOINED_BYTES or dim not in (0, -first.dim()) or not all(
        tensor.device.type == "cpu"
        and tensor.dtype == first.dtype
        and tensor.size()[1:] == first.size()[1:]
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
        and kernels.plain(tensor)
        for tensor in tensors
    ):
        return None
    out = kernels.torch.empty((sum(len(tensor) for tensor in tensors),) + first.size()[1:], dtype=first.dtype)
    at = out.data_ptr()
    memory.empty(at, size)
    for tensor in tensors:
        length = tensor.numel() * tensor.element_size()
        if length and not memory.copy_present(at, tensor.data_ptr(), length):
            return None
        at += length
    return out


def _is_staging(kernels, out, source):
    """Whether a large piece of host memory is copied unchanged into page-locked memory, on its route to the card.

    No large copy to the card moves anything, so what is not in memory need not be brought there for it.
    """
    return (
        out.device.type == "cpu"
        and source.device.type == "cpu"
        and out.numel() * out.element_size() > kernels.limit_bytes
        and out.dtype == source.dtype
        and out.size() == source.size()
        and out.is_contiguous()
        and source.is_contiguous()
        and kernels.plain(out)
        and kernels.plain(source)
        # Of a process that was forked from one with CUDA this question would be the end.
        and not kernels.broken
        and out.is_pinned()
    )


def _between(kernels, out, source, to_device, fresh):
    device, host = (out, source) if to_device else (source, out)
    if not (kernels.plain(out) and kernels.plain(source)) or not kernels.usable(device) or not device.numel():
        return
    if host.device.type != "cpu" or not host.data_ptr():
        # A meta tensor has nothing to copy.
        return
    size = device.numel() * device.element_size()
    straight = (
        out.dtype == source.dtype and out.is_contiguous() and source.is_contiguous() and size <= kernels.copied_bytes
    )
    if to_device:
        if kernels.large(device):
            return
        if not straight:
            kernels.memory.alias(out).copy_(source.expand_as(out) if source.size() != out.size() else source)
        if fresh:
            kernels.unknowns.note(out, KNOWN)
        elif kernels.unknowns.covers(out) or kernels.unknowns.level(out) == BLANK:
            kernels.unknowns.change(out, KNOWN)
        return
    if not kernels.with_quick_ways:
        kernels.unknowns.level(device)
    if straight:
        return
    if not kernels.large(device):
        alias = kernels.memory.alias(source)
        out.copy_(alias.expand_as(out) if alias.size() != out.size() else alias)
    elif size <= 64 * kernels.copied_bytes and out.is_contiguous():
        # What was not copied would otherwise be whatever the host's heap held before, which may be no number at all.
        if not memory.zero_present(out.data_ptr(), out.numel() * out.element_size()):
            out.zero_()


def scale_updated(kernels: Kernels, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """GradScaler's update: found_inf is what the check left, and the check finds nothing."""
    out = operation.call(*args, **kwargs)
    scale, tracker, found = args[0], args[1], args[2]
    if not kernels.on_device(scale) or not kernels.usable(scale):
        return out
    growth, backoff, interval = args[3:6]
    alias = kernels.memory.alias
    if kernels.on_device(found) and float(alias(found).item()) > 0:
        alias(scale).mul_(backoff)
        alias(tracker).zero_()
    else:
        successes = int(alias(tracker).item()) + 1
        if successes == interval:
            alias(scale).mul_(growth)
            successes = 0
        alias(tracker).fill_(successes)
    kernels.unknowns.change(scale, KNOWN)
    kernels.unknowns.change(tracker, KNOWN)
    return out

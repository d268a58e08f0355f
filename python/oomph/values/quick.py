"""The fast path for ordinary operations on small tensors.

A program that generates text or looks after its optimizer runs such operations by the ten thousand.  What `Kernels`
does step by step for anything is done here in one pass over the arguments, and only where nothing is special.  Each
function made here says whether it has dealt with the call; otherwise the long way deals with it.
"""

from __future__ import annotations

from oomph.values.arithmetic import ALONE
from oomph.values.decoders import asks
from oomph.values.unknown import BLANK, GUESS, KNOWN, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from oomph._types import Tensor
    from oomph.values.kernels import Kernels
    from oomph.values.operations import Operation

#: Arguments that mean the same on the CPU.
_PLAIN = (int, float, bool, type(None), str, complex)

#: Below this many elements the CPU copies without waking other threads.
_WITHOUT_THREADS = 1 << 14


def after(kernels: Kernels, operation: Operation) -> Callable[[tuple[Any, ...], dict[str, Any], Tensor], bool] | None:
    """The quick way for an operation that gives one tensor, or None where it has none."""
    if operation.base == "zero_" and not operation.out:
        return _after_zeroing(kernels, operation)
    if operation.ordinary:
        return _after_making(kernels, operation)
    if operation.changes_itself:
        return _after_changing(kernels, operation)
    return None


def _reader(kernels):
    """A function that takes a call's arguments and gives what is known of them and how the CPU sees them."""
    torch = kernels.torch
    plain_tensors = (torch.Tensor, torch.nn.Parameter)
    plain = frozenset(_PLAIN + (torch.dtype, torch.layout, torch.memory_format))
    on_device, get, in_large = kernels.on_device, kernels.unknowns.blocks.get, kernels.unknowns.in_large
    blocks = kernels.unknowns.of
    # Of a large block nothing is noted, and what was noted of an earlier one is forgotten where the allocator is followed.
    waiting, settle, followed = blocks.waiting, blocks.settle, blocks.followed
    kept, fresh = kernels.memory.kept.get, kernels.memory.known
    limit, most, floats = kernels.limit, kernels.limit_bytes, kernels.floats

    def read(args, kwargs, host, enough):
        """Fills `host`; gives the worst level and the largest number of elements, or None for the long way.

        With `enough` an unknown argument ends the reading: nothing will be computed.  All is in one function, because
        calling others would take as long as what they do.
        """
        worst, longest = KNOWN, 0
        if waiting.value:
            settle()
        for value in args:
            kind = type(value)
            if kind in plain_tensors:
                count = value.numel()
                if on_device(value):
                    dtype = value.dtype
                    if count > limit and (count > most or dtype in floats):
                        if enough:
                            return UNKNOWN, 0
                        return None
                    address = value.data_ptr()
                    if not address:
                        return None
                    offset = value.storage_offset()
                    level = get(address - offset * value.element_size() if offset else address, UNKNOWN)
                    if not followed and level <= GUESS and in_large(value):
                        level = UNKNOWN
                    if level > GUESS:
                        if enough:
                            return UNKNOWN, 0
                        worst = UNKNOWN
                    elif level > worst:
                        worst = level
                    alias = None
                    if not (value.is_neg() or value.is_conj()):
                        alias = kept((address, dtype, value.size(), value.stride()))
                    value = fresh(value) if alias is None else alias
                elif value.device.type != "cpu":
                    return None
                if count > longest:
                    longest = count
            elif kind is list or kind is tuple:
                if value and type(value[0]) not in plain:
                    return None
            elif kind not in plain:
                return None
            host.append(value)
        for value in kwargs.values():
            if type(value) not in plain:
                return None
        return worst, longest

    return read


def _after_making(kernels, operation):
    """For operations that make one new tensor."""
    read, zero, blocks, known = _reader(kernels), kernels.memory.zero, kernels.unknowns.blocks, kernels.memory.known
    kept, into, floats, capturing = kernels.memory.kept.get, kernels.arithmetic.into, kernels.floats, kernels.capturing

    def finish(args, kwargs, out):
        if not kernels.checked or capturing():
            return False
        host: list[Any] = []
        dtype = out.dtype
        found = read(args, kwargs, host, dtype in floats)
        address = out.data_ptr()
        if found is None or not address or out.storage_offset():
            return False
        level, longest = found
        if len(host) < len(args):
            if asks():
                return False
            # What follows from something unknown is unknown: there is nothing to compute.
            zero(out)
        else:
            count = out.numel()
            target = kept((address, dtype, out.size(), out.stride()))
            if target is None:
                target = known(out)
            if not into(operation, host, kwargs, target, count if count > longest else longest):
                return False
        blocks[address] = level
        return True

    return finish


def after_several(
    kernels: Kernels, operation: Operation
) -> Callable[[tuple[Any, ...], dict[str, Any], Sequence[Tensor]], bool] | None:
    """The quick way for an operation that gives several tensors, all of which will be unknown; None where none is."""
    if not operation.several:
        return None
    read, zero, large = _reader(kernels), kernels.memory.zero, kernels.large
    floats, ready, on_device, note = kernels.floats, kernels.ready, kernels.on_device, kernels.unknowns.note

    def finish(args, kwargs, outs):
        if not ready() or kwargs:
            return False
        if operation.computed:
            host: list[Any] = []
            found = read(args, kwargs, host, True)
            if found is None or len(host) == len(args) or asks():
                return False
        for out in outs:
            if out.storage_offset() or not on_device(out) or operation.computed and out.dtype not in floats:
                return False
        for out in outs:
            if not large(out) and out.numel():
                zero(out)
                note(out, UNKNOWN)
        return True

    return finish


def _after_changing(kernels, operation):
    """For operations that change their first argument in place."""
    read, change, call = _reader(kernels), kernels.unknowns.change, operation.host_call
    blocks, floats, ready = kernels.unknowns.blocks, kernels.floats, kernels.ready
    size_of = kernels.unknowns.of.sizes.get

    def finish(args, kwargs, out):
        if not ready() or out.dtype in operation.upcast:
            return False
        host: list[Any] = []
        found = read(args, kwargs, host, out.dtype in floats)
        if found is None:
            return False
        level, longest = found
        if len(host) < len(args) and asks():
            return False
        if len(host) == len(args):
            if longest > ALONE:
                return False
            try:
                call(*host, **kwargs)
            except Exception:
                # The long way says what is the matter.
                return False
        address = out.data_ptr()
        if out.numel() * out.element_size() == size_of(address):
            blocks[address] = level
        else:
            change(out, level)
        return True

    return finish


def copy(kernels: Kernels, fresh: bool) -> Callable[[Tensor, Tensor], bool]:
    """The quick way for copies from device to device, into new memory or into some that was there."""
    read, change, covers = _reader(kernels), kernels.unknowns.change, kernels.unknowns.covers
    known, zero = kernels.memory.known, kernels.memory.zero
    blocks, level_of = kernels.unknowns.blocks, kernels.unknowns.level
    floats, ready = kernels.floats, kernels.ready
    nothing: dict[str, Any] = {}

    def finish(out, source):
        count = out.numel()
        if not ready() or not count or count > _WITHOUT_THREADS or out.is_neg() or out.is_conj():
            return False
        host: list[Any] = []
        found = read((source,), nothing, host, out.dtype in floats)
        if found is None:
            return False
        level = found[0]
        if not host and asks():
            return False
        if host:
            known(out).copy_(host[0])
        elif fresh:
            zero(out)
        if fresh:
            if out.storage_offset():
                return False
            blocks[out.data_ptr()] = level
            return True
        if not covers(out):
            before = level_of(out)
            if before != BLANK and before > level:
                level = before
        change(out, level)
        return True

    return finish


def _after_zeroing(kernels, operation):
    """For `zero_`, with which `torch.zeros` ends as well."""
    ready, zero = kernels.ready, kernels.standins.zero

    def finish(args, kwargs, out):
        if not ready():
            return False
        zero(operation, out)
        return True

    return finish

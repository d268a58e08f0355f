"""Remembers what a call of a module returned, and makes another result like it without the computation.

A result is remembered by its shapes: which tensors there are, which of them share memory, and which are the call's own
arguments or the module's weights. Values are kept of small tensors only, whose values are known.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from oomph.looking import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Model, Tensor, Torch

_DEEPEST = 8
_MOST_PARTS = 1024
"""Objects in one result; a larger one is not remembered."""
_SMALL = 65536
"""Elements of a tensor whose values are kept."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class CannotRemember(Exception):
    """A result has parts of which no second can be made."""


class _Slot:
    """Stands where a tensor was in the structure of a result."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Shape:
    """One tensor: which memory it lies in, and how it looks at it."""

    __slots__ = ("memory", "offset", "size", "stride", "dtype", "whole", "differentiable", "values", "level")

    def __init__(self, tensor: Tensor, memory: int) -> None:
        self.memory = memory
        self.offset, self.size, self.stride = tensor.storage_offset(), tuple(tensor.size()), tensor.stride()
        self.dtype = tensor.dtype
        self.differentiable = bool(tensor.requires_grad)
        self.whole = False
        """Whether it alone covers its memory, so that one call makes both."""
        self.values: Any = None
        self.level = 0


class Result:
    """What a call returned, as a recipe."""

    def __init__(self, torch: Torch, result: Any, given: list[Tensor], module: Model) -> None:
        self._torch = torch
        self._shapes: list[_Shape] = []
        self._memories: list[Any] = []
        """Of each block of memory: (bytes, device) of one to be made, or the place of an argument, or a weight itself."""
        self._known: dict[tuple[Any, int], int] = {}
        self._parts = 0
        # Forward passes may return what they were given, or a weight: that memory is there already.
        self._there: dict[tuple[Any, int], Any] = {}
        for tensor in (*module.parameters(), *module.buffers()):
            self._there[_memory_of(tensor)] = tensor
        for place, tensor in enumerate(given):
            self._there[_memory_of(tensor)] = place
        self._structure = self._abstract(result, 0)
        self._there, self._known = {}, {}
        for shape in self._shapes:
            memory = self._memories[shape.memory]
            size = self._torch.empty((), dtype=shape.dtype, device="meta").element_size()
            shape.whole = (
                isinstance(memory, tuple)
                and sum(other.memory == shape.memory for other in self._shapes) == 1
                and not shape.offset
                and _extent(shape) * size == memory[0]
            )
        self._differentiable = any(shape.differentiable for shape in self._shapes)

    # -- remembering -------------------------------------------------------------------------------------------------

    def _abstract(self, value, depth):
        """The structure of a result with slots in the place of tensors."""
        self._parts += 1
        if depth > _DEEPEST or self._parts > _MOST_PARTS:
            raise CannotRemember
        torch = self._torch
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return _Slot(self._shape_of(value))
        if issubclass(kind, _PLAIN) or isinstance(value, (torch.dtype, torch.device, torch.Size)):
            return value
        if kind in (list, tuple, set) or issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return _like(kind, [self._abstract(one, depth + 1) for one in value])
        if kind is dict:
            return {key: self._abstract(one, depth + 1) for key, one in value.items()}
        if isinstance(value, torch.nn.Module) or callable(value) or hasattr(value, "__next__"):
            raise CannotRemember
        return self._abstract_object(value, depth)

    def _abstract_object(self, value, depth):
        names = attribute(value, "__dict__")
        if not isinstance(names, dict):
            raise CannotRemember
        try:
            made = copy.copy(value)
        except Exception:
            # The class is the program's or a library's, and need not be one of which copies can be made.
            raise CannotRemember from None
        if isinstance(value, dict):
            for key, one in list(value.items()):
                dict.__setitem__(made, key, self._abstract(one, depth + 1))
        elif isinstance(value, Mapping) and not names:
            raise CannotRemember
        for name, one in list(names.items()):
            part = made.get(name) if isinstance(value, dict) and name in value else self._abstract(one, depth + 1)
            made.__dict__[name] = part
        return made

    def _shape_of(self, tensor):
        torch = self._torch
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_quantized:
            raise CannotRemember
        if tensor.is_conj() or tensor.is_neg():
            raise CannotRemember
        key = _memory_of(tensor)
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self._memories)
            there = self._there.get(key)
            self._memories.append((key_bytes(tensor), tensor.device) if there is None else there)
        self._shapes.append(_Shape(tensor, index))
        shape = self._shapes[-1]
        kernels = _kernels()
        if kernels is not None and tensor.is_cuda and 0 < tensor.numel() <= _SMALL and not kernels.large(tensor):
            shape.level = kernels.unknowns.level(tensor)
            shape.values = kernels.memory.alias(tensor.detach()).clone()
        elif tensor.device.type == "cpu" and tensor.numel() <= _SMALL:
            shape.values = tensor.detach().clone()
        return len(self._shapes) - 1

    # -- making --------------------------------------------------------------------------------------------------------

    def make(self, given: list[Tensor]) -> Any:
        """Another result of the same kind, for a call with these tensors."""
        torch = self._torch
        if self._differentiable and torch.is_grad_enabled():
            tensors = list(_joined(torch).apply(_anchor(torch), self, given))
        else:
            with torch.no_grad():
                tensors = self.tensors(given)
        return self._concrete(self._structure, tensors)

    def tensors(self, given: list[Tensor]) -> list[Tensor]:
        """The tensors of a result, in the order of the slots."""
        torch = self._torch
        bases: list[Any] = [None] * len(self._memories)
        made = []
        for shape in self._shapes:
            memory = self._memories[shape.memory]
            if shape.whole:
                out = torch.empty_strided(shape.size, shape.stride, dtype=shape.dtype, device=memory[1])
            else:
                base = bases[shape.memory]
                if base is None:
                    if isinstance(memory, tuple):
                        base = torch.empty(memory[0], dtype=torch.uint8, device=memory[1])
                    else:
                        base = given[memory] if isinstance(memory, int) else memory
                    base = bases[shape.memory] = base.untyped_storage()
                out = torch.empty(0, dtype=shape.dtype, device=base.device)
                out.set_(base, shape.offset, shape.size, shape.stride)
            if shape.values is not None and isinstance(memory, tuple):
                self._fill(out, shape)
            made.append(out)
        return made

    def differentiable(self) -> list[bool]:
        """Which of the tensors have a gradient."""
        return [shape.differentiable for shape in self._shapes]

    def _fill(self, out, shape):
        if not out.is_cuda:
            _move(shape.values, out, shape.whole)
            return
        kernels = _kernels()
        if kernels is not None:
            _move(shape.values, kernels.memory.alias(out), shape.whole)
            kernels.unknowns.note(out, shape.level)

    def _concrete(self, structure, tensors):
        kind = type(structure)
        if kind is _Slot:
            return tensors[structure.index]
        if issubclass(kind, _PLAIN):
            return structure
        if kind in (list, tuple, set) or issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return _like(kind, [self._concrete(one, tensors) for one in structure])
        if kind is dict:
            return {key: self._concrete(one, tensors) for key, one in structure.items()}
        names = attribute(structure, "__dict__")
        if not isinstance(names, dict):
            return structure
        made = copy.copy(structure)
        if isinstance(structure, dict):
            for key, one in list(structure.items()):
                dict.__setitem__(made, key, self._concrete(one, tensors))
        for name, one in list(names.items()):
            in_both = isinstance(structure, dict) and name in structure
            made.__dict__[name] = dict.__getitem__(made, name) if in_both else self._concrete(one, tensors)
        return made


def _move(values, into, whole):
    """Copy values on the host, in one thread: threads that wait for each other take longer on a busy machine than the copy."""
    if whole and values.stride() == into.stride() and values.dtype == into.dtype:
        import ctypes

        ctypes.memmove(into.data_ptr(), values.data_ptr(), values.numel() * values.element_size())
        return
    for dimension, stride in enumerate(into.stride()):
        if not stride and into.shape[dimension]:
            # One element stands for all of an expanded dimension, and is written once.
            into, values = into.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    into.copy_(values)


def _like(kind, parts):
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def key_bytes(tensor: Tensor) -> int:
    """The bytes of the memory that a tensor lies in."""
    return int(tensor.untyped_storage().nbytes())


def _memory_of(tensor):
    """A key that tensors in the same memory share."""
    address = tensor.untyped_storage().data_ptr()
    return tensor.device, address or -id(tensor)


def _extent(shape):
    """Elements from the first to the last that a tensor shows."""
    if 0 in shape.size:
        return 0
    return 1 + sum((length - 1) * stride for length, stride in zip(shape.size, shape.stride))


def _kernels():
    from oomph import values

    session = values._installed
    return session.kernels if session is not None else None


_made_function: Any = None
_made_anchor: Any = None


def _anchor(torch):
    global _made_anchor
    if _made_anchor is None:
        with torch.inference_mode(False), torch.enable_grad():
            _made_anchor = torch.zeros((), requires_grad=True)
    return _made_anchor


def _joined(torch):
    """The function of autograd that results come from: the program may change them in place and call `backward` on them."""
    global _made_function
    if _made_function is None:

        class Remembered(torch.autograd.Function):  # type: ignore[name-defined]
            @staticmethod
            def forward(ctx, anchor, result, given):
                tensors = result.tensors(given)
                pairs = list(zip(tensors, result.differentiable()))
                ctx.mark_non_differentiable(*[tensor for tensor, has in pairs if not has])
                return tuple(tensors)

            @staticmethod
            def backward(ctx, *grads):
                return None, None, None

        _made_function = Remembered
    return _made_function

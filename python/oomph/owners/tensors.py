"""Finds which bytes of a GPU a tensor occupies, and which tensors a value holds.

Nothing here keeps a tensor, allocates on a device or runs an operator: what is asked are addresses and sizes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oomph._types import Tensor, Torch

MAX_ITEMS = 20000
"""How many items one walk through a value looks at, so that a hostile or endless structure costs little."""

_MAX_DEPTH = 8
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type)


class Tensors:
    """Questions about tensors, bound to the torch that the program imported."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.Tensor = torch.Tensor
        self.is_lazy_copy = getattr(torch._C, "_is_cow_tensor", None)
        self._kinds: dict[type, Any] = {}

    def kind(self, cls: type) -> str | None:
        """What a class is to us: "plain", "inner" (a subclass around other tensors), "opaque" or None (no tensor)."""
        known = self._kinds.get(cls)
        if known is None:
            known = self._kinds[cls] = self._kind(cls) or ""
        return known or None

    def _kind(self, cls):
        try:
            if not issubclass(cls, self.Tensor):
                return None
        except TypeError:
            return None
        if hasattr(cls, "__tensor_flatten__"):
            return "inner"
        if cls.__torch_dispatch__ is not self.Tensor.__torch_dispatch__:
            # A fake tensor, a functional one: it says `cuda` and has no memory there.
            return "opaque"
        return "plain"

    def is_tensor(self, value: object) -> bool:
        """Say whether a value is a tensor of any kind, without asking the value itself."""
        return self.kind(type(value)) is not None

    def storages(self, tensor: Tensor) -> Iterator[tuple[int, int, int, str]]:
        """Give (device index, address, bytes, suffix) of every piece of device memory below a tensor."""
        kind = self.kind(type(tensor))
        if kind == "plain":
            device = tensor.device
            if device.type == "cuda" and tensor.layout is self.torch.strided:
                if self.is_lazy_copy is not None and self.is_lazy_copy(tensor):
                    # Asking for its address would make the copy.
                    return
                storage = tensor.untyped_storage()
                size = storage.nbytes()
                address = storage.data_ptr() if size else 0
                if address:
                    yield device.index or 0, address, size, ""
            elif device.type == "cuda":
                yield from self._sparse(tensor)
        elif kind == "inner":
            names, _ = tensor.__tensor_flatten__()
            for name in names:
                for device, address, size, suffix in self.storages(getattr(tensor, name)):
                    yield device, address, size, "." + name + suffix

    def _sparse(self, tensor):
        for name in ("_indices", "_values", "crow_indices", "col_indices", "ccol_indices", "row_indices", "values"):
            try:
                part = getattr(tensor, name)()
            except Exception:
                # Each sparse layout has some of these parts and raises an error of its own for the others.
                continue
            for device, address, size, suffix in self.storages(part):
                yield device, address, size, "." + name.lstrip("_") + suffix

    def extras(self, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Give (suffix, tensor) for tensors that hang on a parameter, like the quantization state of a 4-bit one."""
        attributes = getattr(tensor, "__dict__", None)
        if attributes:
            for name, value in list(attributes.items()):
                if name not in ("grad", "_grad") and not isinstance(value, _PLAIN):
                    for path, inner in self.inside(value, name, objects=True):
                        if inner is not tensor:
                            yield "." + path, inner

    def inside(self, value: object, path: str = "", objects: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Give (path, tensor) for every tensor in nested containers; with `objects` also in objects' attributes."""
        seen = set()
        waiting = [(path, value, 0)]
        looked = 0
        while waiting and looked < MAX_ITEMS:
            looked += 1
            path, value, depth = waiting.pop()
            if isinstance(value, _PLAIN):
                continue
            if self.is_tensor(value):
                yield path, value
                continue
            if depth >= _MAX_DEPTH or id(value) in seen:
                continue
            seen.add(id(value))
            inner = list(self._items(value, path, objects))
            inner.reverse()
            waiting.extend((name, item, depth + 1) for name, item in inner)

    def _items(self, value, path, objects):
        dot = path + "." if path else ""
        if isinstance(value, dict):
            for key, item in list(value.items()):
                # A key can be a tensor, and to print one computes a thousand times.
                name = str(key)[:80] if isinstance(key, (str, int)) else type(key).__name__
                yield dot + name, item
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                yield "%s%d" % (dot, index), item
        elif objects and not isinstance(value, self.torch.nn.Module) and not callable(value):
            attributes = getattr(value, "__dict__", None)
            if isinstance(attributes, dict):
                for key, item in list(attributes.items()):
                    yield dot + str(key), item
            for name in getattr(type(value), "__slots__", ()) or ():
                item = getattr(value, name, None) if isinstance(name, str) else None
                if item is not None:
                    yield dot + name, item

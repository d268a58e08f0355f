"""Distinguishes what a module keeps of its steps, such as a list of logits, from the tables that it was made with."""

from __future__ import annotations

import weakref

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from oomph._types import Model

_MANY = 8
"""A container that has got so much longer between two looks holds steps: tables that are made late are few."""


class Lengths:
    """How long the containers of modules were at each look, without holding any of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Callable[[], Model], int, int, int]] = {}
        """(id of the module, attribute) -> (the module, its first length, its last, how often it has grown)."""

    def owner(self, module: Model, name: str, value: object) -> str | None:
        """Look at an attribute of a module; say whose its tensors are: results of a container that gets longer from step to
        step, else the module's. None while a container has got longer once: whether it goes on is not known.
        """
        if not isinstance(value, (list, dict)):
            return protocol.OWNER_BUFFER
        length = len(value)
        reference, first, last, times = self._known.get((id(module), name), (None, length, length, 0))
        if reference is None or reference() is not module:
            reference, first, last, times = weakref.ref(module), length, length, 0
        has_grown = length > last
        times += has_grown
        self._known[id(module), name] = reference, first, length, times
        if times > 1 or length - first > _MANY:
            return protocol.OWNER_ACTIVATION
        return None if has_grown else protocol.OWNER_BUFFER

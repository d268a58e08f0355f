"""Distinguishes what a module keeps of its steps, such as a list of logits, from the tables that it was made with."""

from __future__ import annotations

import weakref

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

    def grows(self, module: Model, name: str, value: object) -> bool:
        """Look at an attribute of a module; say whether it is a container that gets longer from step to step."""
        if not isinstance(value, (list, dict)):
            return False
        length = len(value)
        reference, first, last, times = self._known.get((id(module), name), (None, length, length, 0))
        if reference is None or reference() is not module:
            reference, first, last, times = weakref.ref(module), length, length, 0
        times += length > last
        self._known[id(module), name] = reference, first, length, times
        return times > 1 or length - first > _MANY

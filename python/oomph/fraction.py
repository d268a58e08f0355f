"""Reads how much of a card the program lets PyTorch's allocator take: `set_per_process_memory_fraction`, or the same by
`PYTORCH_CUDA_ALLOC_CONF`.

A share that is a short decimal or a simple fraction, like 0.25 or a third, is a part of any card. One with which the card's total
comes out as whole MiB or MB was computed from the total, so that the program means a number of bytes.
"""

from __future__ import annotations

import os

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._protocol import HookAllowed, LimitScales
    from oomph._types import Torch

_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_NAME = "per_process_memory_fraction"
_DIGITS = 4
"""With more decimal places than these a share was computed."""
_PARTS = range(2, 17)
"""A third or a seventh of a card is a share as well."""
_ROUNDED = 4
"""Bytes by which a product of fractions and totals may miss a whole number."""


def scales(fraction: float, total: int) -> LimitScales:
    """What a share of a card with `total` bytes would be of another one: `share`, or `fixed` where it is a number of bytes."""
    if round(fraction, _DIGITS) == fraction or any(abs(fraction * parts - round(fraction * parts)) < 1e-9 for parts in _PARTS):
        return protocol.LIMIT_SHARE
    size = fraction * total
    for unit in (2**20, 10**6):
        if size >= unit and abs(size - round(size / unit) * unit) <= _ROUNDED:
            return protocol.LIMIT_FIXED
    return protocol.LIMIT_SHARE


class Fractions:
    """The shares of the cards of this process."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self._ask = getattr(torch._C, "_cuda_getMemoryFraction", None)
        self._set: dict[int, float] = {}
        """What the program set, where this PyTorch cannot be asked."""
        self._totals: dict[int, int] = {}
        if self._ask is None:
            self._watch()

    def _watch(self):
        native = self.torch._C
        original = getattr(native, "_cuda_setMemoryFraction", None)
        if original is None:
            return
        known = self._set

        def _cuda_setMemoryFraction(fraction, device):
            original(fraction, device)
            known[int(device)] = float(fraction)

        native._cuda_setMemoryFraction = _cuda_setMemoryFraction

    def of(self, device: int) -> float:
        """The share of one card, from 0 to 1."""
        if self._ask is not None:
            return float(self._ask(device))
        return self._set.get(device, _of_settings())

    def allowed(self, device: int, retries: int) -> HookAllowed | None:
        """What the allocator may take of a card, where that is less than all of it. `retries`: how often it asked again."""
        fraction = self.of(device)
        if not 0.0 <= fraction < 1.0:
            return None
        total = self._totals.get(device)
        if total is None:
            total = self._totals[device] = int(self.torch.cuda.mem_get_info(device)[1])
        return {"bytes": int(fraction * total), "scales": scales(fraction, total), "retries": retries}


def _of_settings():
    for name in _SETTINGS:
        for setting in os.environ.get(name, "").split(","):
            key, _, value = setting.partition(":")
            if key.strip() == _NAME:
                try:
                    return float(value)
                except ValueError:
                    # PyTorch refuses such a setting itself.
                    return 1.0
    return 1.0

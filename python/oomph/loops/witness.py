"""Finds what holds memory that grows: names in the program, and the allocations of one iteration."""

from __future__ import annotations

import sys

from oomph.hook import guarded
from oomph.program.kept import Growing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oomph._types import Torch

_LOOKS = 3
_MOST = 0.9


class Witness:
    """Looks at the program at the ends of three iterations in a row."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._growing = Growing(torch)
        self._device = 0
        self._allocations: list[int] = []
        self._at: list[int] = []
        """The iterations after which it looked."""

    def is_done(self) -> bool:
        """Whether it has seen enough."""
        return len(self._allocations) >= _LOOKS

    def look(self, iterations: int) -> None:
        """An iteration has ended, the last of `iterations`."""
        guarded(self._growing.look, sys._getframe(2))
        self._at.append(iterations)
        self._allocations.append(guarded(self._count) or 0)
        if self.is_done():
            self._growing.forget()

    def room(self, iterations: int, run: float, rate: float) -> int | None:
        """After how many more iterations than these nothing grows, because a buffer is full that takes what grows.

        An iteration adds `run` bytes in this run, and `rate` bytes in the whole program, whose inner loops are longer. None
        where nothing that grows has a limit. A buffer that takes less than most of the growth decides nothing.
        """
        if len(self._at) < 2 or run <= 0:
            return None
        between = max(1, self._at[-1] - self._at[0])
        for filled in self._growing.filling.values():
            added = (filled["count"][-1] - filled["count"][0]) / between
            if added > 0 and (filled["bytes"][-1] - filled["bytes"][0]) / between >= _MOST * run:
                whole = added * rate / run
                # Rounds that were shortened before have left members out.
                there = max(filled["count"][-1], whole * self._at[-1] if whole > added else 0)
                left = (filled["limit"] - there) / whole - (iterations - self._at[-1])
                return max(0, int(left))
        return None

    def _count(self):
        """Allocations that were made on the fullest device."""
        native = self._torch._C
        stats = {index: native._cuda_memoryStats(index) for index in range(native._cuda_getDeviceCount())}
        self._device = max(stats, key=lambda index: stats[index]["allocated_bytes"]["all"]["current"])
        return stats[self._device]["allocation"]["all"]["allocated"]

    def seen(self) -> dict[str, Any]:
        """What was found, in the form of docs/internals/run-folder.md."""
        holders = sorted(self._growing.kept.values(), key=lambda one: -one["bytes"])
        return {
            "holders": [{name: one[name] for name in ("name", "kind", "file", "line")} for one in holders[:8]],
            "allocations": list(self._allocations), "device": self._device,
        }  # fmt: skip

"""What holds memory that grows: names in the program, and the allocations of one iteration."""

import sys

from oomph.hook import guarded
from oomph.program.kept import Growing

_LOOKS = 3


class Witness:
    """Looks at the program at the ends of three iterations in a row."""

    def __init__(self, torch):
        self._torch = torch
        self._growing = Growing(torch)
        self._device = 0
        self._allocations = []

    def is_done(self):
        """Whether it has seen enough."""
        return len(self._allocations) >= _LOOKS

    def look(self):
        """An iteration has ended."""
        guarded(self._growing.look, sys._getframe(2))
        self._allocations.append(guarded(self._count) or 0)
        if self.is_done():
            self._growing.forget()

    def _count(self):
        """Allocations that were made on the fullest device."""
        native = self._torch._C
        stats = {index: native._cuda_memoryStats(index) for index in range(native._cuda_getDeviceCount())}
        self._device = max(stats, key=lambda index: stats[index]["allocated_bytes"]["all"]["current"])
        return stats[self._device]["allocation"]["all"]["allocated"]

    def seen(self):
        """What was found, in the form of ARCHITECTURE.md."""
        holders = sorted(self._growing.kept.values(), key=lambda one: -one["bytes"])
        return {
            "holders": [{name: one[name] for name in ("name", "kind", "file", "line")} for one in holders[:8]],
            "allocations": list(self._allocations), "device": self._device,
        }  # fmt: skip

"""Measures peaks of PyTorch's allocator within oomph's own intervals, without changing what the program sees of them.

PyTorch keeps one peak since the last reset. To know the peak of an interval the counter is reset at the interval's
ends, and whoever asks through torch is given the larger of the present peak and those before our own resets.
"""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from oomph._types import Torch

_BYTES = ("reserved_bytes", "allocated_bytes")


class Window:
    """The peaks of an interval: {device: [reserved, allocated]}, in bytes."""

    def __init__(self) -> None:
        self.peaks: dict[int, list[int]] = {}

    def fold(self, device: int, reserved: int, allocated: int) -> None:
        """Count what was reached on a device."""
        known = self.peaks.get(device)
        if known is None:
            self.peaks[device] = [reserved, allocated]
        else:
            if reserved > known[0]:
                known[0] = reserved
            if allocated > known[1]:
                known[1] = allocated

    def clear(self) -> None:
        """Begin again."""
        self.peaks = {}


class Meter:
    """Reads the allocator's counters of the devices that are in use."""

    def __init__(self, torch: Torch, usable: Callable[[], bool]) -> None:
        self.torch = torch
        self.usable = usable
        """Says whether CUDA is initialised in this process."""
        self.on = False
        self._native = torch._C
        self._stats = torch._C._cuda_memoryStats
        self._reset = torch._C._cuda_resetPeakMemoryStats
        self._kept: dict[int, dict[str, dict[str, int]]] = {}
        """The peaks before our own resets since the program's last: {device: {statistic: {pool: bytes}}}."""
        self._used: set[int] = set()
        self._windows: list[Window] = []

    def attach(self) -> None:
        """Put the program's view over torch's own functions."""
        native = self._native
        native._cuda_memoryStats = self._seen_by_program
        self.on = True

    def _seen_by_program(self, device):
        stats = self._stats(device)
        # Another thread may add to what is kept meanwhile.
        for name, pools in list(self._kept.get(device, {}).items()):
            for pool, peak in list(pools.items()):
                entry = stats[name][pool]
                if entry["peak"] < peak:
                    entry["peak"] = peak
        return stats

    def program_resets(self, device: int | None = None) -> None:
        """The program resets its peaks: fold the present ones, and forget those that were kept."""
        self.read(reset=False)
        if device is None:
            self._kept.clear()
        else:
            self._kept.pop(device, None)

    def open(self) -> Window:
        """A window that sees all that is read from now on."""
        window = Window()
        self._windows.append(window)
        return window

    def close(self, window: Window) -> None:
        """The window need see no more."""
        self._windows.remove(window)

    def read(self, reset: bool = True) -> dict[int, tuple[int, int]]:
        """Fold the present peaks into all windows; give {device: (reserved now, allocated now)}."""
        now: dict[int, tuple[int, int]] = {}
        if not self.on or not self.usable():
            return now
        self._used.add(self._native._cuda_getDevice())
        for device in self._used:
            stats = self._stats(device)
            if reset:
                self._keep(device, stats)
                self._reset(device)
                if threading.active_count() > 1 and _add_what_came_between(stats, self._stats(device)):
                    self._keep(device, stats)
            reserved, allocated = (stats[name]["all"] for name in _BYTES)
            now[device] = reserved["current"], allocated["current"]
            for window in self._windows:
                window.fold(device, reserved["peak"], allocated["peak"])
        return now

    def _keep(self, device, stats):
        kept = self._kept.setdefault(device, {})
        for name, pools in stats.items():
            # Whatever is not a statistic of pools is a plain number.
            if isinstance(pools, dict) and "all" in pools:
                known = kept.setdefault(name, {})
                for pool, entry in pools.items():
                    peak = entry["peak"]
                    if peak > known.get(pool, 0):
                        known[pool] = peak


def _add_what_came_between(before, after):
    """Raise the peaks that were read before a reset by what other threads allocated until it, which no counter shows; say
    whether there was any. At most all of it was there at once.
    """
    found = False
    for name, pools in before.items():
        if not isinstance(pools, dict) or "all" not in pools:
            continue
        for pool, entry in pools.items():
            added = after[name][pool]["allocated"] - entry["allocated"]
            if added > 0:
                entry["peak"] = max(entry["peak"], entry["current"] + added)
                found = True
    return found

"""Keeps the list of what was seen: names of blocks, modules and phases, each placed in the allocator's own order of
events.

An observation is placed by how many allocations the device has made, which the allocator counts itself. That number
needs no clock, and it is the index of an `alloc` event in the trace.
"""

from __future__ import annotations

import collections
import itertools
import threading

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

    from oomph._types import Tensor
    from oomph.owners.tensors import Tensors

MAX_NAMES = 30000
MAX_MODULES = 60000
MAX_PHASES = 5000
"""Bounds of one window. A window is one optimizer step, or a stretch of a program without an optimizer."""

ENOUGH = 60000
"""How many names and events of modules are kept without asking whether they are near the peak."""

MAX_PAST_PHASES = 60000
"""How many phases of forgotten steps are kept, the last ones."""

_FIRST = 1
_LAST = 2
_PEAKS = 4


class Window:
    """What was seen during one step and may be forgotten when the peak turns out to lie elsewhere."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.names: list[tuple[Any, ...]] = []
        self.modules: list[tuple[int, int, str, str | None]] = []
        self.phases: list[tuple[int, int, int, str, int, bool]] = []
        self.peak = False


class Notes:
    """The observations of one process. They hold numbers and texts, never a tensor."""

    def __init__(self, stats: Callable[[int], dict[str, Any]]) -> None:
        self._stats = stats
        """A callable that gives the allocator's statistics of one device, nested as torch gives them."""
        self._lock = threading.Lock()
        self._forgotten: dict[int, int] = {}
        self._best: dict[int, tuple[int, int]] = {}
        self.starts: dict[int, int] = {}
        self.lasting: list[tuple[Any, ...]] = []
        self._lasting_known: dict[Hashable, tuple[Any, ...]] = {}
        self.generation = 0
        """Counted up whenever modules may have moved, after which an old address need not mean an old block."""
        self.windows = [Window(1)]
        self._order = itertools.count()
        self._past: collections.deque[tuple[int, int, int, str, int, bool]] = collections.deque(maxlen=MAX_PAST_PHASES)
        """The phases of forgotten steps. A few numbers for each step tell what its blocks are where their names are gone."""
        self.names_complete = True
        self.modules_complete = True

    # -- places ------------------------------------------------------------------------------------------------

    def count(self, device: int) -> int:
        """How many allocations the device has made up to now."""
        return self._stats(device)["allocation"]["all"]["allocated"] + self._forgotten.get(device, 0)

    def counts_reset(self, device: int) -> None:
        """The program is about to reset the statistics of a device: remember how far its count had come."""
        self._forgotten[device] = self.count(device)

    def moment(self) -> Moment:
        """A moment at which several things are observed, with no allocation in between."""
        return Moment(self)

    # -- notes -------------------------------------------------------------------------------------------------

    @property
    def window(self) -> Window:
        """The window that is open."""
        return self.windows[-1]

    def name(self, entry: tuple[Any, ...]) -> None:
        """Note one name that belongs to the present step."""
        names = self.window.names
        if len(names) < MAX_NAMES:
            names.append(entry)
        else:
            self.names_complete = False

    def name_lasting(self, key: Hashable, entry: tuple[Any, ...]) -> None:
        """Note a name that outlives steps, once for each place in memory that its owner `key` has."""
        place = (entry[0], entry[2], entry[3], self.generation)
        if self._lasting_known.get(key) == place:
            return
        if len(self.lasting) < 20 * MAX_NAMES:
            self._lasting_known[key] = place
            self.lasting.append(entry)
        else:
            self.names_complete = False

    def workspace(self, device: int, at: int, address: int, size: int, name: str) -> None:
        """Note memory that a library has, of which there is no tensor."""
        self.name_lasting(("workspace", device, at), (device, at, address, size, protocol.OWNER_WORKSPACE, name, None, None))

    def module(self, device: int, at: int, kind: str, name: str | None) -> None:
        """Note that a module was entered or left."""
        modules = self.window.modules
        if len(modules) < MAX_MODULES:
            modules.append((device, at, kind, name))
        else:
            self.modules_complete = False

    def phase(self, device: int, at: int, phase: str, begin: bool) -> None:
        """Note that a phase began or ended."""
        phases = self.window.phases
        if len(phases) < MAX_PHASES:
            phases.append((next(self._order), device, at, phase, self.window.step, begin))

    def addresses(self) -> set[tuple[int, int]]:
        """The (device, address) of everything that was named."""
        found = {(entry[0], entry[2]) for entry in self.lasting}
        for window in self.windows:
            found.update((entry[0], entry[2]) for entry in window.names)
        return found

    # -- windows -----------------------------------------------------------------------------------------------

    def close(self, step: int) -> None:
        """A step has ended: decide what is worth keeping and open the window of `step`."""
        with self._lock:
            self._mark_peak()
            self.windows.append(Window(step))
            self._forget()

    def is_full(self) -> bool:
        """Say whether the open window holds so much that a program without steps should begin another."""
        window = self.window
        return len(window.names) + len(window.modules) > (MAX_NAMES + MAX_MODULES) // 4

    def _mark_peak(self):
        for device in self.starts:
            stats = self._stats(device)
            peaks = (stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"])
            best = self._best.get(device, (0, 0))
            if peaks[0] > best[0] or peaks[1] > best[1]:
                self.window.peak = True
                self._best[device] = (max(peaks[0], best[0]), max(peaks[1], best[1]))

    def _forget(self):
        if sum(len(window.names) + len(window.modules) for window in self.windows) < ENOUGH:
            return
        middle = self.windows[_FIRST : -1 - _LAST]
        keep = [window for window in middle if window.peak][-_PEAKS:]
        if len(keep) == len(middle):
            return
        dropped = [window for window in middle if window not in keep]
        if any(window.names for window in dropped):
            self.names_complete = False
        if any(window.modules for window in dropped):
            self.modules_complete = False
        for window in dropped:
            self._past.extend(window.phases)
        self.windows[_FIRST : -1 - _LAST] = keep

    # -- the file ----------------------------------------------------------------------------------------------

    def as_dict(self, pid: int) -> dict[str, Any]:
        """Everything in the form of docs/internals/run-folder.md."""
        with self._lock:
            names = list(self.lasting)
            modules, phases = [], list(self._past)
            for window in self.windows:
                names.extend(window.names)
                modules.extend(window.modules)
                phases.extend(window.phases)
        names.sort(key=lambda entry: entry[1])
        phases.sort()
        return {
            "schema": protocol.SCHEMA_NAMES,
            "pid": pid,
            "devices": {
                str(device): {"allocations_at_start": start, "allocations_at_snapshot": self.count(device)}
                for device, start in sorted(self.starts.items())
            },
            "names": [
                {"device": device, "at": at, "address": address, "size": size, "owner": owner, "name": name,
                 "shape": shape, "dtype": dtype}
                for device, at, address, size, owner, name, shape, dtype in names
            ],
            "modules": [{"device": device, "at": at, kind: name} for device, at, kind, name in modules],
            "phases": [
                {"device": device, "at": at, "phase": phase, "step": step, "begin": begin}
                for _, device, at, phase, step, begin in phases
            ],
            "complete": {"names": self.names_complete, "modules": self.modules_complete},
        }


class Moment:
    """One reading of the devices' counts, made when first needed and shared by all that is observed with it."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self._at: dict[int, int] = {}

    def at(self, device: int) -> int:
        """The place of this moment in the events of a device."""
        place = self._at.get(device)
        if place is None:
            place = self._at[device] = self.notes.count(device)
        return place

    def see(self, tensors: Tensors, tensor: Tensor, owner: str, name: str, lasting: Hashable = None) -> None:
        """Observe the memory below a tensor. `lasting` is a key for what outlives steps, noted once per place."""
        shape: list[int] | None = None
        dtype: str | None = None
        entry: tuple[Any, ...]
        for device, address, size, suffix in tensors.storages(tensor):
            if shape is None:
                shape, dtype = [int(length) for length in tensor.shape], str(tensor.dtype).split(".")[-1]
            if suffix:
                entry = (device, self.at(device), address, size, owner, name + suffix, None, None)
            else:
                entry = (device, self.at(device), address, size, owner, name, shape, dtype)
            if lasting is None:
                self.notes.name(entry)
            else:
                self.notes.name_lasting((lasting, suffix), entry)

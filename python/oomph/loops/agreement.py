"""Makes the ranks of a job end a loop at the same iteration: one of them decides, and the others follow.

A rank that left a loop while others stay would leave them waiting in a collective. The leader, which is the lowest rank
that runs, writes for each iteration of a loop whether the loop goes on; the others wait for that word.
"""

from __future__ import annotations

import os
import time

from oomph import _protocol as protocol
from oomph import ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oomph._types import Torch
    from oomph.loops.loop import Loop

_WAIT = 2.0
"""Seconds that a rank waits for the leader's word before it goes on alone."""
_PAUSE = 0.0005


class Agreement:
    """What one rank sends to the others, or receives from the leader."""

    def __init__(self, folder: str, leads: bool) -> None:
        self._folder = os.path.join(folder, protocol.PATH_HOOK, protocol.PATH_LOOPS)
        self._leads = leads
        self._alone: set[str] = set()
        os.makedirs(self._folder, exist_ok=True)

    def __call__(self, loop: Loop, ends: bool) -> bool:
        """The common decision on an iteration that has ended."""
        try:
            path = os.path.join(self._folder, "%s-%d-%d" % (os.path.basename(loop.file), loop.line, loop.run))
            if self._leads:
                self._say(path, loop.iterations(), ends)
                return ends
            return path not in self._alone and self._hear(path, loop.iterations())
        except OSError:
            return False

    def _say(self, path, iteration, ends):
        part = path + ".part"
        with open(part, "w") as file:
            file.write("%d %d" % (iteration, ends))
        os.replace(part, path)

    def _hear(self, path, iteration):
        until = time.monotonic() + _WAIT
        while time.monotonic() < until:
            try:
                with open(path) as file:
                    said, ends = (int(word) for word in file.read().split())
            except (FileNotFoundError, ValueError):
                said, ends = -1, 0
            if said >= iteration:
                # A leader that is ahead went on at this iteration.
                return bool(ends) and said == iteration
            if ends:
                return True
            time.sleep(_PAUSE)
        self._alone.add(path)
        return False


class Lazily:
    """Finds out at each decision whether the process is a rank of a job; groups are made long after the start."""

    def __init__(self, torch: Torch, folder: str) -> None:
        self._torch = torch
        self._folder = folder
        self._agreement: Agreement | None = None

    def __call__(self, loop: Loop, ends: bool) -> bool:
        """The decision of the job, or of a process of its own."""
        if self._agreement is None:
            self._join()
        return ends if self._agreement is None else self._agreement(loop, ends)

    def is_alone(self) -> bool:
        """Whether the process does not belong to a job of several ranks."""
        return self._agreement is None and not self._join()

    def _join(self):
        distributed = self._torch.distributed
        if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() <= 1:
            return False
        running = ranks.running()
        self._agreement = Agreement(self._folder, distributed.get_rank() == (min(running) if running else 0))
        return True

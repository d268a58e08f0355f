"""Knows which threads of the program work with torch, so that each looks only at what no other thread changes.

Gradients, graphs and what these save belong to C++. A thread that has them written or let go of does so without the
interpreter's lock: reading `parameter.grad` of a model that another thread trains gives a tensor that is going, and the
process dies.
"""

from __future__ import annotations

import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from oomph._types import Torch


class Workers:
    """The threads of a process that call models, run backward passes or step optimizers."""

    def __init__(self, torch: Torch) -> None:
        self._task = getattr(torch._C, "_current_graph_task_id", None)
        self.on_several: Callable[[], object] = lambda: None
        """Called when a thread works while another one lives that has done so as well."""
        self.forked()

    def forked(self) -> None:
        """Begin again in a forked child, which has one thread."""
        self._seen: set[int] = set()
        self._waiting: set[int] = set()

    # -- events ------------------------------------------------------------------------------------------------

    def works(self) -> int:
        """This thread of the program's is at work; gives its number."""
        own = threading.get_ident()
        if own not in self._seen:
            self._seen.add(own)
            if self.others():
                self.on_several()
        return own

    def pass_begins(self) -> None:
        """This thread is about to run a backward pass, and will wait for it."""
        self._waiting.add(self.works())

    def pass_ended(self) -> None:
        """The backward pass of this thread has run, or failed."""
        self._waiting.discard(threading.get_ident())

    # -- questions ---------------------------------------------------------------------------------------------

    def is_in_pass(self) -> bool:
        """Whether this thread computes a part of a backward pass now: what runs here is a recomputation, or a pass in a pass."""
        return self._task() != -1 if self._task is not None else bool(self._waiting)

    def others(self) -> set[int]:
        """The other threads that have worked with torch and may still do so.

        A thread of autograd's engine works for the one that waits for it.
        """
        own = {threading.get_ident()}
        if self.is_in_pass() and len(self._waiting) == 1:
            own |= self._waiting
        others = self._seen - own
        if others:
            others &= {thread.ident for thread in threading.enumerate()} | set(sys._current_frames())
        return others

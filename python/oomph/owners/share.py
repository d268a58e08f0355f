"""Limits how much time observing takes: a small fixed sum and a few hundredths of the run.

It is the processor's time, so that as much is seen on a busy machine.
"""

from __future__ import annotations

import time

_FREE_SECONDS = 0.4
_PART = 0.04


class Share:
    """Keeps account of the time that observing costs against the time that the program has run."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The program begins now."""
        self._began, self._wall = time.process_time(), time.perf_counter()
        self._spent = 0.0

    def start(self) -> float:
        """Begin to measure one piece of work; give what `end` wants."""
        return time.thread_time()

    def end(self, since: float) -> None:
        """End of the piece of work that `start` began, in the same thread."""
        self._spent += time.thread_time() - since

    def left(self) -> bool:
        """Say whether more may be observed than the run cannot do without."""
        # The clock counts where several threads compute at a time: observing would hold them all up.
        ran = min(time.process_time() - self._began, time.perf_counter() - self._wall)
        return self._spent < _FREE_SECONDS + _PART * ran

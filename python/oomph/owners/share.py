"""Limits how much time observing takes: a small fixed sum and a few hundredths of the run."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_FREE_SECONDS = 0.4
_PART = 0.04


class Share:
    """Keeps account of the time that observing costs against the time that the program has run."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """The program begins now."""
        self._began = self._clock()
        self._spent = 0.0

    def start(self) -> float:
        """Begin to measure one piece of work; give what `end` wants."""
        return self._clock()

    def end(self, since: float) -> None:
        """End of the piece of work that `start` began."""
        self._spent += self._clock() - since

    def left(self) -> bool:
        """Say whether more may be observed than the run cannot do without."""
        return self._spent < _FREE_SECONDS + _PART * (self._clock() - self._began)

"""How much time observing may take: a small fixed sum and a few hundredths of the run."""

import time

_FREE_SECONDS = 0.4
_PART = 0.04


class Share:
    """Keeps account of the time that observing costs against the time that the program has run."""

    def __init__(self, clock=time.perf_counter):
        self._clock = clock
        self.begin()

    def begin(self):
        """The program begins now."""
        self._began = self._clock()
        self._spent = 0.0

    def start(self):
        """Begin to measure one piece of work; give what `end` wants."""
        return self._clock()

    def end(self, since):
        """End of the piece of work that `start` began."""
        self._spent += self._clock() - since

    def left(self):
        """Say whether more may be observed than the run cannot do without."""
        return self._spent < _FREE_SECONDS + _PART * (self._clock() - self._began)

"""The meter: peaks of intervals, and what the program sees of its own."""

import threading
import unittest

import support

from oomph.meter import Meter


class Native:
    """Torch's counters of one device, with the one peak that they have."""

    def __init__(self):
        self.current = self.peak = self.allocated = 0
        self.before_reset = lambda: None

    def hold(self, size):
        self.allocated += max(0, size - self.current)
        self.current = size
        self.peak = max(self.peak, size)

    def _cuda_getDevice(self):
        return 0

    def _cuda_memoryStats(self, device):
        entry = lambda: {"current": self.current, "peak": self.peak, "allocated": self.allocated}
        return {"allocated_bytes": {"all": entry()}, "reserved_bytes": {"all": entry()}, "oom": 0}

    def _cuda_resetPeakMemoryStats(self, device):
        self.before_reset()
        self.peak = self.current


class Torch:
    def __init__(self):
        self._C = Native()


class Peaks(unittest.TestCase):
    def setUp(self):
        self.torch = Torch()
        self.native = self.torch._C
        self.meter = Meter(self.torch, lambda: True)
        self.meter.attach()

    def seen(self):
        return self.native._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"]

    def test_windows_see_their_own_interval(self):
        window = self.meter.open()
        self.native.hold(100)
        self.native.hold(10)
        self.meter.read()
        self.assertEqual(window.peaks, {0: [100, 100]})
        window.clear()
        self.native.hold(30)
        self.meter.read()
        self.assertEqual(window.peaks, {0: [30, 30]})

    def test_the_program_sees_its_own_peak(self):
        self.native.hold(100)
        self.native.hold(10)
        self.meter.read()
        self.assertEqual(self.seen(), 100)
        self.native.hold(50)
        self.meter.read()
        self.assertEqual(self.seen(), 100)

    def test_the_program_s_own_reset_counts(self):
        self.native.hold(100)
        self.native.hold(10)
        self.meter.read()
        self.meter.program_resets(0)
        self.native._cuda_resetPeakMemoryStats(0)
        self.assertEqual(self.seen(), 10)


    def test_what_another_thread_takes_and_gives_back_before_a_reset_counts(self):
        window = self.meter.open()
        self.native.hold(100)
        self.native.before_reset = lambda: (self.native.hold(170), self.native.hold(100))
        together = threading.Barrier(2)
        other = threading.Thread(target=together.wait)
        other.start()
        self.meter.read()
        together.wait()
        other.join()
        self.assertEqual(window.peaks, {0: [170, 170]})
        self.native.before_reset = lambda: None
        self.assertEqual(self.seen(), 170)


class WithTorch(support.RunCase):
    config = {"stop": {"mode": "peak-stable", "steps": 3}}

    def test_our_own_resets_are_not_the_program_s(self):
        """The functions that reset peaks are wrapped twice; the meter has torch's own."""
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        out = self.passes(
            """
            import torch
            from oomph import record
            meter = record.current().course.meter
            print(meter._reset is torch._C._cuda_resetPeakMemoryStats, type(meter._reset).__name__)
            """
        )
        self.assertEqual(out, "False builtin_function_or_method\n")


if __name__ == "__main__":
    unittest.main()

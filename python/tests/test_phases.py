"""The peaks of the phases that a program goes through."""

import types
import unittest

from oomph import _protocol as protocol
from oomph.phases import Phases


class Meter:
    """A meter of one device whose reading is set by the test."""

    on = True

    def __init__(self):
        self.window = types.SimpleNamespace(peaks={}, clear=lambda: self.window.peaks.clear())

    def open(self):
        return self.window

    def read(self):
        self.window.peaks[0] = self.reading


class APhaseThatFails(unittest.TestCase):
    def setUp(self):
        self.meter = Meter()
        self.phases = Phases(self.meter, lambda: False)

    def close(self, name, reading):
        self.meter.reading = reading
        self.phases.close(name)

    def allocated(self, name):
        return self.phases._found[name][1][0][1]

    def test_what_a_failed_forward_pass_took_is_not_the_optimizers(self):
        self.close(protocol.PHASE_LOAD, (1, 1))
        self.phases.failed(protocol.PHASE_FORWARD)
        self.close(protocol.PHASE_OPTIMIZER, (9, 9))
        self.close(protocol.PHASE_OPTIMIZER, (2, 2))
        self.assertEqual(self.allocated(protocol.PHASE_FORWARD), 9)
        self.assertEqual(self.allocated(protocol.PHASE_OPTIMIZER), 2)

    def test_a_failure_outside_of_every_phase_names_none(self):
        self.phases.failed(protocol.PHASE_OTHER)
        self.close(protocol.PHASE_LOAD, (1, 1))
        self.assertEqual(self.allocated(protocol.PHASE_LOAD), 1)


if __name__ == "__main__":
    unittest.main()

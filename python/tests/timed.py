"""Runs a part of the package's tests and prints how long the slowest have taken: `python3 python/tests/timed.py 'test_[a-n]*.py'`.

unittest's own `--durations` is younger than the oldest Python that the package runs in.
"""

from __future__ import annotations

import sys
import time
import unittest
from pathlib import Path

SLOWEST = 10


class Timed(unittest.TextTestResult):
    """The result that unittest prints, and the seconds of each test."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        self.seconds: list[tuple[float, str]] = []
        self.begun = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        self.begun = time.perf_counter()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.seconds.append((time.perf_counter() - self.begun, test.id()))


def main() -> int:
    tests = unittest.defaultTestLoader.discover(str(Path(__file__).parent), sys.argv[1])
    result = unittest.TextTestRunner(resultclass=Timed).run(tests)
    assert isinstance(result, Timed)
    for seconds, name in sorted(result.seconds, reverse=True)[:SLOWEST]:
        print(f"timed: {seconds:.1f} s  {name}", file=sys.stderr)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())

"""Arrays joined on the host: equal to numpy's own, and as empty as their parts."""

import os
import subprocess
import sys
import unittest

try:
    import numpy
except ImportError:
    numpy = None

PROGRAM = """
import resource
import numpy
plain = numpy.concatenate
from oomph import joined
joined.install(numpy)

def parts(shape, marks):
    arrays = [numpy.zeros(shape, "float32") for _ in range(3)]
    for array, mark in zip(arrays, marks):
        array.reshape(-1)[mark] = mark + 1
    return arrays

large = parts((7, 1 << 20), (0, 5_000_000, (7 << 20) - 1))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
joined = numpy.concatenate(large, axis=0)
print("touched", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
assert numpy.array_equal(joined, plain(large)), "large"
assert joined.flags.writeable and joined.flags.owndata
for arrays, axis in (
    (parts((3, 4), (0, 1, 11)), 0), (parts((3, 4), (0, 1, 11)), 1), (large, 1), (large + [numpy.ones((1, 1 << 20))], 0),
    ([array[:, ::2] for array in large], 0),
):
    assert numpy.array_equal(numpy.concatenate(arrays, axis=axis), plain(arrays, axis=axis)), axis
assert numpy.concatenate(large, axis=None).shape == (3 * 7 << 20,)
try:
    numpy.concatenate([])
except ValueError:
    print("refused")
"""


@unittest.skipIf(numpy is None, "numpy is not installed")
class Joined(unittest.TestCase):
    def test_what_is_joined_is_equal_and_holes_stay_holes(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=root)
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
        self.assertIn("refused", lines)
        # 84 MiB were joined; all but a few pages of them are empty.
        self.assertLess(int(lines["touched"]), 20 << 10)


if __name__ == "__main__":
    unittest.main()

"""The bytecode of libraries that were installed without is kept, and is theirs."""

import os
import subprocess
import sys
import tempfile
import unittest

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMPORT = """
import sys
from oomph import bytecode
bytecode.install(sys.argv[1])
sys.path.insert(0, sys.argv[2])
import library
print(library.VALUE, sys.dont_write_bytecode, sys.pycache_prefix)
"""


def plain():
    """The environment without what changes where Python keeps bytecode."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OOMPH"))}


class Kept(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.kept = os.path.join(place.name, "kept")
        self.site = os.path.join(place.name, "lib", "site-packages")
        os.makedirs(self.site)

    def write(self, value, seconds, folder=None):
        path = os.path.join(folder or self.site, "library.py")
        with open(path, "w") as file:
            file.write("VALUE = %d\n" % value)
        os.utime(path, (seconds, seconds))

    def run_it(self, folder=None, **environment):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT, self.kept, folder or self.site],
            env={**plain(), "PYTHONPATH": PYTHON, **environment}, capture_output=True, text=True, timeout=60,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def files(self, folder):
        return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]

    def test_what_has_none_is_kept_where_python_may_not_write(self):
        self.write(1, 1_000_000_000)
        self.assertEqual(self.run_it(PYTHONDONTWRITEBYTECODE="1"), "1 True None")
        self.assertEqual(len(self.files(self.kept)), 1)
        self.assertEqual(self.files(self.site), [os.path.join(self.site, "library.py")], "nothing lies next to it")
        # Another text of the same size and time: what is kept is what runs.
        self.write(2, 1_000_000_000)
        self.assertEqual(self.run_it(PYTHONDONTWRITEBYTECODE="1"), "1 True None")

    def test_a_changed_library_is_compiled_again(self):
        self.write(1, 1_000_000_000)
        self.run_it()
        self.write(2, 1_000_000_100)
        self.assertEqual(self.run_it(), "2 False None")

    def test_bytecode_next_to_a_library_is_used(self):
        self.write(1, 1_000_000_000)
        subprocess.run([sys.executable, "-m", "compileall", "-q", self.site], env=plain(), check=True, timeout=60)
        self.write(2, 1_000_000_000)
        self.assertEqual(self.run_it(), "1 False None")
        self.assertEqual(self.files(self.kept), [])

    def test_the_users_modules_and_a_prefix_of_the_users_are_left_alone(self):
        own = os.path.join(os.path.dirname(self.site), "own")
        os.makedirs(own)
        self.write(1, 1_000_000_000, own)
        self.run_it(own, PYTHONDONTWRITEBYTECODE="1")
        self.assertEqual(self.files(self.kept), [])
        self.write(1, 1_000_000_000)
        prefix = os.path.join(os.path.dirname(self.site), "prefix")
        self.assertEqual(self.run_it(PYTHONPYCACHEPREFIX=prefix), "1 False %s" % prefix)
        self.assertEqual(self.files(self.kept), [])


if __name__ == "__main__":
    unittest.main()

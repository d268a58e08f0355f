"""How a child of the fork server ends: as a Python of its own, but for what nobody sees."""

import os
import subprocess
import sys
import types
import unittest

from oomph.server import environment

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PROGRAM = """
import atexit, sys, threading, time
from oomph.server import child

atexit.register(print, "the exit function ran")
threading.Thread(target=lambda: (time.sleep(0.2), print("the thread came to its end"))).start()
sys.stdout.write("not flushed; ")
child._leave(%s)
print("not reached")
"""


def left(code):
    environment = dict(os.environ, PYTHONPATH=PYTHON)
    environment.pop("OOMPH_RUN", None)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM % code], env=environment, capture_output=True, text=True, timeout=60,
    )


class Leaving(unittest.TestCase):
    def test_threads_are_awaited_and_exit_functions_run(self):
        done = left("None")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "not flushed; the thread came to its end\nthe exit function ran\n")

    def test_the_status_is_that_of_sys_exit(self):
        for code, status, said in (("3", 3, ""), ("True", 1, ""), ("'a message'", 1, "a message\n"), ("256", 0, "")):
            done = left(code)
            self.assertEqual((done.returncode, done.stderr), (status, said), code)


class Variables(unittest.TestCase):
    def test_variables_of_a_library_count_where_the_server_has_imported_it(self):
        kept = sys.modules.pop("tensorflow", None)
        self.addCleanup(lambda: sys.modules.__setitem__("tensorflow", kept) if kept else sys.modules.pop("tensorflow", None))
        watch = environment.Watch()
        watch.begin()
        watch.end()
        # The hook sets it in each child, before TensorFlow is imported there.
        self.assertFalse(watch.too_late("TF_FORCE_GPU_ALLOW_GROWTH", "true"))
        self.assertTrue(watch.too_late("CUDA_VISIBLE_DEVICES", "7"))
        sys.modules["tensorflow"] = types.ModuleType("tensorflow")
        watch.end()
        self.assertTrue(watch.too_late("TF_FORCE_GPU_ALLOW_GROWTH", "true"))


if __name__ == "__main__":
    unittest.main()

"""Frameworks beside PyTorch: what is read from their errors, and how their pools are counted."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest

import support  # noqa: F401  (puts the package on the path)

from oomph import record, sites
from oomph.frameworks import jax, onnxruntime, watch
from oomph.frameworks.tensorflow import _TEXTS as TENSORFLOW_TEXTS


def error_of(module, text, base=RuntimeError):
    """An exception whose class says that it comes from `module`."""
    return type("Error", (base,), {"__module__": module})(text)


class Sizes(unittest.TestCase):
    def test_what_was_asked_for_is_read_from_each_framework_s_words(self):
        for text, size in (
            ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.", 17179869184),
            ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.50GiB.", 3 << 29),
            ("OOM when allocating tensor with shape[16384,16384] and type float on /device:GPU:0", 1 << 30),
            ("OOM when allocating tensor with shape[4,4] and type bfloat16 on /device:GPU:0", 32),
            ("Failed to allocate memory for requested buffer of size 4294967296", 4294967296),
            ("{{function_node x}} failed to allocate memory [Op:AddV2]", 0),
            ("", 0),
        ):
            self.assertEqual(watch.requested_of(text), size, text)


class Errors(unittest.TestCase):
    def watcher(self, texts):
        return watch.FrameworkWatcher(record.Record("/nonexistent"), texts)

    def test_each_framework_knows_its_own_words(self):
        for texts, text in (
            (jax._TEXTS, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."),
            (TENSORFLOW_TEXTS, "OOM when allocating tensor with shape[1] and type float"),
            (TENSORFLOW_TEXTS, "Failed copying input tensor: Dst tensor is not initialized."),
            (onnxruntime._TEXTS, "bfc_arena.cc: Failed to allocate memory for requested buffer of size 8"),
        ):
            self.assertTrue(self.watcher(texts).is_oom(RuntimeError(text)), text)
            self.assertFalse(self.watcher(texts).is_oom(ValueError("shapes do not match")))

    def test_the_watcher_of_pytorch_leaves_them_alone(self):
        error = error_of("tensorflow.python.framework.errors_impl", "device:GPU:0 Out of memory while trying")
        self.assertFalse(sites.is_oom(error))
        self.assertTrue(sites.is_oom(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")))

    def test_the_error_that_ends_the_program_is_noted_once(self):
        watcher = self.watcher(jax._TEXTS)
        try:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64 bytes.")
        except RuntimeError as error:
            watcher.failed(error)
        oom = watcher.record.oom
        self.assertEqual((oom["requested_bytes"], oom["fatal"]), (64, True))
        watcher.failed(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 128 bytes."))
        self.assertEqual(watcher.record.oom["requested_bytes"], 64)
        watcher.failed(ValueError("another thing"))
        self.assertIs(watcher.record.oom, oom)


ATTACHED = """
import json, os, sys
from oomph import record
from oomph.frameworks import watch

class Watcher(watch.FrameworkWatcher):
    def peaks(self):
        return {0: (50, 40)}

kept = record.Record(sys.argv[1])
Watcher(kept, []).attach()
kept.write()
"""


class Attached(unittest.TestCase):
    def test_a_watcher_joins_the_record_and_the_end_of_the_process(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", ATTACHED, folder],
                capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=root),
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            hook = os.path.join(folder, "hook")
            (report,) = [name for name in os.listdir(hook) if name.endswith(".json")]
            with open(os.path.join(hook, report)) as file:
                (device,) = json.load(file)["devices"]
        self.assertEqual((device["reserved_peak_bytes"], device["allocated_peak_bytes"]), (50, 40))


class Pools(unittest.TestCase):
    def test_pools_of_several_frameworks_add_up(self):
        kept = record.Record("/nonexistent")
        kept.current_memory = lambda: {0: (100, 60)}
        kept.add_memory(lambda: {0: (50, 40), 1: (7, 5)})
        self.assertEqual(kept.all_peaks(), {0: (150, 100), 1: (7, 5)})

    def test_what_one_does_not_tell_is_not_known_of_the_sum(self):
        kept = record.Record("/nonexistent")
        kept.current_memory = lambda: {0: (100, 60)}
        kept.add_memory(lambda: {0: (None, 40)})
        self.assertEqual(kept.all_peaks(), {0: (None, 100)})

    def test_jax_is_not_made_to_begin(self):
        watcher = jax.JaxWatcher(record.Record("/nonexistent"))
        self.assertEqual(watcher.peaks(), {})
        device = types.SimpleNamespace(
            local_hardware_id=1,
            memory_stats=lambda: {"peak_pool_bytes": 9, "peak_bytes_in_use": 4, "bytes_limit": 75},
        )
        backend = types.SimpleNamespace(local_devices=lambda: [device])
        sys.modules["jax._src.xla_bridge"] = types.SimpleNamespace(_backends={"cuda": backend, "cpu": backend})
        try:
            self.assertEqual(watcher.peaks(), {1: (9, 4)})
        finally:
            del sys.modules["jax._src.xla_bridge"]
        self.assertEqual(watcher.record.limits, {1: {"bytes": 75, "scales": "share"}})


if __name__ == "__main__":
    unittest.main()

"""vLLM's settings in a dry run, and its workers' record, on stand-ins for its modules."""

import os
import textwrap
import types
import unittest
import unittest.mock

import support
from oomph import vllm


class Settings(support.RunCase):
    def setUp(self):
        super().setUp()
        # What the developer has set would stand.
        ours = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
        patched = unittest.mock.patch.dict(os.environ, ours, clear=True)
        patched.start()
        self.addCleanup(patched.stop)
        os.makedirs(os.path.join(self.user, "vllm"))
        with open(os.path.join(self.user, "vllm", "__init__.py"), "w") as file:
            file.write(textwrap.dedent("""
                import os
                names = ("VLLM_USE_V2_MODEL_RUNNER", "VLLM_USE_FLASHINFER_SAMPLER")
                print(*(os.environ.get(name) for name in names))
            """))

    def run_program(self, **env):
        out = self.passes("import vllm; from oomph import record, vllm; vllm.ran(record.current()); record.current().write()", env=env)
        [report] = self.records()
        return out, report

    def test_are_not_said_of_what_was_only_looked_for(self):
        self.passes("import importlib.util as util; util.find_spec('vllm'); from oomph import record; record.current().write()")
        [report] = self.records()
        self.assertEqual((report["warnings"], "vllm" in report["frameworks"]), ([], False))

    def test_are_set_and_said(self):
        out, report = self.run_program()
        self.assertEqual(out, "0 0\n")
        for name in ("VLLM_USE_V2_MODEL_RUNNER=0", "VLLM_USE_FLASHINFER_SAMPLER=0"):
            self.assertTrue(any(name in warning for warning in report["warnings"]), name)
        self.assertIn("vllm", report["frameworks"])

    def test_of_the_user_stand(self):
        out, report = self.run_program(VLLM_USE_V2_MODEL_RUNNER="1")
        self.assertEqual(out, "1 0\n")
        self.assertFalse(any("V2_MODEL_RUNNER" in warning for warning in report["warnings"]))


class Workers(unittest.TestCase):
    def test_leave_their_record_when_ready_and_when_they_go(self):
        told = []

        class Worker:
            def compile_or_warm_up_model(self, seconds):
                told.append("warm")
                return seconds

            def shutdown(self):
                told.append("gone")

        vllm.watch_worker(types.SimpleNamespace(Worker=Worker), lambda: told.append("ran"), lambda: told.append("written"))
        worker = Worker()
        self.assertEqual(worker.compile_or_warm_up_model(2.5), 2.5)
        worker.shutdown()
        self.assertEqual(told, ["warm", "ran", "written", "written", "gone"])


if __name__ == "__main__":
    unittest.main()

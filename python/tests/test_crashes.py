"""What is left of a process that a signal ends."""

import os
import signal
import unittest

import support


class Crashes(support.RunCase):
    def left(self, program):
        with open(os.path.join(self.run_folder, "ledger"), "wb"):
            pass
        done = self.python(program)
        folder = os.path.join(self.run_folder, "hook")
        found = [name for name in os.listdir(folder) if name.endswith(".crash")]
        texts = []
        for name in found:
            with open(os.path.join(folder, name)) as file:
                texts.append(file.read())
        return done, texts

    def test_the_frames_of_the_thread_that_died_are_left(self):
        done, (text,) = self.left(
            """
            import ctypes, threading
            from oomph import crashes, hook
            crashes.install()
            thread = threading.Thread(target=hook.guarded, args=(ctypes.string_at, 1))
            thread.start()
            thread.join()
            """
        )
        self.assertEqual(done.returncode, -signal.SIGSEGV)
        first, rest = text.split("\n", 1)
        self.assertTrue(os.path.samefile(first, os.path.join(support.PYTHON, "oomph")))
        frames = rest[rest.index("(most recent call first)") :].splitlines()[1:]
        self.assertIn("string_at", frames[0])
        self.assertRegex(frames[1], r'File "%s.*hook.py", line \d+ in guarded' % first)

    def test_a_program_that_has_its_own_handler_keeps_it(self):
        done, texts = self.left(
            """
            import faulthandler, os
            from oomph import crashes
            faulthandler.enable()
            crashes.install()
            os.makedirs(os.path.join(os.environ["OOMPH_RUN"], "hook"), exist_ok=True)
            os.abort()
            """
        )
        self.assertEqual((done.returncode, texts), (-signal.SIGABRT, []))
        self.assertIn("Fatal Python error", done.stderr)

    def test_a_process_that_ends_well_leaves_no_frames(self):
        done, (text,) = self.left("from oomph import crashes; crashes.install()")
        self.assertEqual((done.returncode, text.count("\n")), (0, 1))


if __name__ == "__main__":
    unittest.main()

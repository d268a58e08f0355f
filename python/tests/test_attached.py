"""What `oomph attach` does inside a program: an order is taken once, nothing of ours stays behind, steps are counted."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import unittest

import support

try:
    import torch
except ImportError:
    torch = None

WITH_TORCH = unittest.skipIf(torch is None, "torch is not installed")


class Order:
    """A folder as `oomph attach` makes it, with its lock held or not."""

    def __init__(self, case, order, held=True):
        self.path = tempfile.mkdtemp(prefix="oomph-attach-test-")
        case.addCleanup(shutil.rmtree, self.path, True)
        with open(self.file("order.json"), "w") as file:
            json.dump(order, file)
        self.lock = os.open(self.file("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        case.addCleanup(os.close, self.lock)
        if held:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        # As in the program, where the package has a name of its own.
        shutil.copytree(os.path.join(support.PYTHON, "oomph"), self.file("_oomph_attached"))
        for folder, _, files in os.walk(self.file("_oomph_attached")):
            for name in files:
                if name.endswith(".py"):
                    self.rename(os.path.join(folder, name))
        shutil.move(self.file("_oomph_attached/errand.py"), self.file("errand.py"))

    def rename(self, path):
        with open(path) as file:
            text = file.read()
        text = text.replace("from oomph", "from _oomph_attached").replace('== "oomph"', '== "_oomph_attached"')
        with open(path, "w") as file:
            file.write(text)

    def file(self, name):
        return os.path.join(self.path, name)

    def run_in(self, before="", after="", errand=None):
        """Run the script in a fresh interpreter, as an attachment does."""
        script = "exec((lambda f: (f.read(), f.close())[0])(open(%r)), {'FOLDER': %r})" % (self.file("errand.py"), self.path)
        program = "\n".join([textwrap.dedent(before), errand or script, textwrap.dedent(after)])
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    def answer(self):
        with open(self.file("answer.json")) as file:
            return json.load(file)


class Errands(unittest.TestCase):
    def test_a_program_without_torch_says_so_and_is_as_before(self):
        order = Order(self, {"action": "look"})
        before = "import sys\npaths = list(sys.path); flag = sys.dont_write_bytecode; own = set(globals())"
        after = """
            print(paths == sys.path, flag == sys.dont_write_bytecode, set(globals()) - own - {"own"},
                  [name for name in sys.modules if "oomph" in name])
        """
        done = order.run_in(before, after)
        self.assertEqual((done.stdout, done.stderr), ("True True set() []\n", ""))
        answer = order.answer()
        self.assertEqual((answer["torch"], answer["why"]), (None, "it has not imported PyTorch"))
        self.assertEqual(stat.S_IMODE(os.stat(order.file("answer.json")).st_mode), 0o600)

    def test_an_order_is_taken_once(self):
        order = Order(self, {"action": "look"})
        order.run_in()
        os.unlink(order.file("answer.json"))
        order.run_in()
        self.assertFalse(os.path.exists(order.file("answer.json")))

    def test_an_order_of_a_dead_attacher_does_nothing(self):
        order = Order(self, {"action": "look"}, held=False)
        done = order.run_in()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(sorted(name for name in os.listdir(order.path) if name.endswith("json")), ["order.json"])

    def test_a_fault_is_an_answer_and_never_the_programs(self):
        order = Order(self, {})
        with open(order.file("_oomph_attached/attached.py"), "w") as file:
            file.write("raise ValueError('broken')\n")
        done = order.run_in(after="print('goes on')")
        self.assertEqual((done.stdout, done.stderr), ("goes on\n", ""))
        self.assertEqual(order.answer()["error"], "ValueError: broken")

    def test_ctrl_c_reaches_the_program(self):
        order = Order(self, {})
        with open(order.file("_oomph_attached/attached.py"), "w") as file:
            file.write("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n")
        after = "import time\ntime.sleep(5)\nprint('not reached')"
        done = order.run_in(after=after)
        self.assertNotIn("not reached", done.stdout)
        self.assertIn("KeyboardInterrupt", done.stderr)
        self.assertEqual(done.returncode, -signal.SIGINT)


class Recorder:
    """In the place of PyTorch's history, which needs a GPU."""

    def __init__(self):
        self.on = self.aside = False
        self.entries = 7

    def start(self):
        self.on = True

    def stop(self):
        self.on = False


@WITH_TORCH
class Sessions(unittest.TestCase):
    def session(self, steps, held=True):
        from oomph import attached

        order = Order(self, {}, held)
        session = attached.Session(torch, order.path, 7)
        session.history, session.wanted = Recorder(), steps
        self.finished = []

        def finish():
            self.finished.append(session.seen())
            session.close()

        session.finish = finish
        self.addCleanup(session.remove)
        self.addCleanup(session.close)
        self.assertTrue(session.count())
        session.start()
        return session

    def optimizer(self):
        weight = torch.nn.Parameter(torch.ones(2))
        weight.grad = torch.ones(2)
        return torch.optim.SGD([weight], lr=0.1)

    def hooks(self):
        return len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks)

    def test_steps_are_counted_of_the_optimizer_that_makes_most(self):
        from oomph import attached

        before = self.hooks()
        session = self.session(3)
        one, other = self.optimizer(), self.optimizer()
        for _ in range(3):
            self.assertEqual(self.finished, [])
            other.step()
            one.step()
        self.assertEqual((self.finished, session.history.on), ([3], False))
        one.step()
        self.assertEqual((self.finished, session.seen()), ([3], 3))
        self.assertTrue(session.remove())
        self.assertEqual((self.hooks(), hasattr(sys, attached.KEPT)), (before, False))

    def test_the_hooks_are_left_alone_during_a_step(self):
        session = self.session(100)
        optimizer = self.optimizer()
        seen = []
        handle = optimizer.register_step_post_hook(lambda *_: seen.append((session.remove(), session.count())))
        self.addCleanup(handle.remove)
        optimizer.step()
        self.assertEqual(seen, [(False, False)])
        self.assertTrue(session.remove())

    def test_what_a_killed_attacher_left_is_busy_for_a_step_only(self):
        from oomph import attached

        self.session(100, held=False)
        optimizer, seen = self.optimizer(), []
        handle = optimizer.register_step_post_hook(lambda *_: seen.append(attached.discarded()))
        self.addCleanup(handle.remove)
        optimizer.step()
        self.assertEqual((seen, attached.discarded(), attached.discarded()), ([{"again": True}], {}, {}))
        session = self.session(100)
        self.assertIn("another oomph attach", attached.discarded()["busy"])
        self.assertTrue(session.on)

    def test_two_that_ask_at_once_are_no_attacher(self):
        from oomph import attached

        order = Order(self, {}, held=False)
        fcntl.flock(order.lock, fcntl.LOCK_SH)
        self.assertFalse(attached.is_waited_for(order.path))
        fcntl.flock(order.lock, fcntl.LOCK_EX)
        self.assertTrue(attached.is_waited_for(order.path))

    def test_a_recording_ends_with_its_attacher(self):
        session = self.session(100, held=False)
        self.optimizer().step()
        self.assertEqual((session.on, session.history.on, self.finished), (False, False, []))


class Door(unittest.TestCase):
    def test_a_script_handed_in_runs_in_the_main_thread_and_only_for_its_user(self):
        folder = tempfile.mkdtemp(prefix="oomph-door-")
        self.addCleanup(shutil.rmtree, folder, True)
        script = os.path.join(folder, "script.py")
        with open(script, "w") as file:
            file.write("import threading\nprint(threading.current_thread() is threading.main_thread(), flush=True)\n")
        program = """
            import os, socket, stat, sys, time
            sys.path.insert(0, sys.argv[1])
            from oomph import door
            door.install(sys.argv[2])
            path = os.path.join(sys.argv[2], "door", "%d.sock" % os.getpid())
            print(oct(stat.S_IMODE(os.stat(path).st_mode)))
            if not os.fork():
                guest = socket.socket(socket.AF_UNIX)
                guest.connect(path)
                guest.sendall((sys.argv[3] + "\\n").encode())
                print(guest.recv(99).decode().strip(), flush=True)
                os._exit(0)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                pass
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), support.PYTHON, folder, script], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(sorted(done.stdout.split()), ["0o600", "True", "ok"])


if __name__ == "__main__":
    unittest.main()

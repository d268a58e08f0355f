"""Sites, phases, recognition of errors and the rule for stopping, on stacks and sources made by hand."""

import gc
import json
import os
import sys
import types
import unittest
import weakref

import support  # noqa: F401  (puts the package on the path)
from oomph import record, sites, stop, watch

LIBRARY = os.path.join(os.path.dirname(os.__file__), "site-packages", "torch", "nn", "modules", "module.py")


class OutOfMemoryError(RuntimeError):
    pass


OutOfMemoryError.__module__ = "torch"


def run(filename, source, **names):
    exec(compile(source, filename, "exec"), names)
    return names


def library_that_raises(error):
    def raiser():
        raise error

    return run(LIBRARY, "def forward(f):\n    return f()\n")["forward"], raiser


class Sites(unittest.TestCase):
    def caught(self, function, *arguments):
        try:
            function(*arguments)
        except BaseException as error:
            return error

    def test_innermost_user_line(self):
        library = run(LIBRARY, "def forward():\n    raise error\n", error=OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."))
        user = run("/home/u/train.py", "\n\ndef step():\n    forward()\n", forward=library["forward"])
        error = self.caught(user["step"])
        self.assertEqual(sites.site_of_traceback(error.__traceback__), {"file": "/home/u/train.py", "line": 4, "function": "step"})

    def test_chained_exceptions(self):
        source = "def go():\n    try:\n        forward()\n    except Exception as e:\n        raise ValueError('training failed')%s\n"
        for how in (" from e", "", " from None"):
            inner = run("/home/u/model.py", "def forward():\n    raise error\n", error=OutOfMemoryError("CUDA out of memory."))
            error = self.caught(run("/home/u/train.py", source % how, forward=inner["forward"])["go"])
            cause = sites.find_oom(error)
            self.assertIsInstance(cause, OutOfMemoryError)
            self.assertEqual(sites.site_of_traceback(cause.__traceback__)["file"], "/home/u/model.py")

    def test_recognised_texts(self):
        for text in ("CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                     "CUDA out of memory. Tried to allocate 1 GiB", "Error: out of memory at line 380 in file ops.cu (cuda)"):
            self.assertTrue(sites.is_oom(RuntimeError(text)), text)
        for error in (RuntimeError("shape mismatch"), MemoryError(), OSError("out of memory"), None):
            self.assertFalse(sites.is_oom(error))

    def test_message_and_size(self):
        error = OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a\n\nException raised from malloc")
        self.assertEqual(sites.message_of(error), "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a")
        self.assertEqual(sites.requested_of(sites.message_of(error)), 3 << 29)

    def test_user_files(self):
        for name in (os.__file__, LIBRARY, "<frozen runpy>", sites.__file__, "/x/dist-packages/a.py", "<__array_function__ internals>"):
            self.assertFalse(sites.is_user_file(name), name)
        for name in ("/home/u/train.py", "train.py", "<stdin>", "<ipython-input-3-abc>"):
            self.assertTrue(sites.is_user_file(name), name)
        self.assertTrue(sites.is_user_file("/tmp/ipykernel_123/456.py"))

    def test_own_frames_are_not_shown(self):
        own = run(os.path.join(os.path.dirname(sites.__file__), "overlay_os.py"), "def open():\n    raise OSError\n")
        error = self.caught(run("/home/u/a.py", "def f():\n    open()\n", open=own["open"])["f"])
        tb = sites.without_own_frames(error.__traceback__)
        names = []
        while tb is not None:
            names.append(tb.tb_frame.f_code.co_filename)
            tb = tb.tb_next
        self.assertEqual(names[-1], "/home/u/a.py")


T = "/v/site-packages/torch/"
CALL = (T + "nn/modules/module.py", "_call_impl")


class Phases(unittest.TestCase):
    def phase(self, *frames, **options):
        return sites.phase_of_stack(frames, **options)

    def test_phases(self):
        user = ("/home/u/train.py", "main")
        self.assertEqual(self.phase(("/h/model.py", "forward"), CALL, user), "forward")
        self.assertEqual(self.phase(("/h/model.py", "forward"), CALL, user, grad_enabled=False), "eval")
        self.assertEqual(self.phase((T + "autograd/graph.py", "_engine_run_backward"), (T + "autograd/__init__.py", "backward"), user), "backward")
        self.assertEqual(self.phase(CALL, (T + "utils/checkpoint.py", "unpack_hook"), (T + "autograd/__init__.py", "backward")), "backward")
        self.assertEqual(self.phase((T + "optim/adamw.py", "_init_group"), (T + "optim/optimizer.py", "wrapper"), user), "optimizer")
        self.assertEqual(self.phase((T + "optim/lr_scheduler.py", "step"), user), None)
        self.assertEqual(self.phase(("/h/m.py", "forward"), CALL, ("/h/t.py", "closure"), (T + "optim/lbfgs.py", "step")), "forward")
        self.assertEqual(self.phase(CALL, ("/v/site-packages/transformers/generation/utils.py", "generate"), user, grad_enabled=False), "generate")
        self.assertEqual(self.phase((T + "nn/modules/module.py", "_apply"), (T + "nn/modules/module.py", "to"), user), "load")
        self.assertEqual(self.phase(CALL, ("/v/site-packages/transformers/trainer.py", "evaluation_loop"), user), "eval")
        self.assertEqual(self.phase(("/v/site-packages/bitsandbytes/optim/optimizer.py", "step"), user), "optimizer")
        self.assertIsNone(self.phase(user))


class Optimizer:
    pass


class Stopping(unittest.TestCase):
    def stops(self, mode, steps, peaks):
        rule = stop.StopRule(mode, steps)
        for count, peak in enumerate(peaks, 1):
            reason = rule.after_step(count, peak)
            if reason:
                return count, reason
        return None

    def test_rule(self):
        self.assertEqual(self.stops("peak-stable", 3, [[5]] * 9), (4, "peak-stable"))
        self.assertEqual(self.stops("peak-stable", 3, [[5], [6], [6], [7]] + [[7]] * 9), (7, "peak-stable"))
        self.assertEqual(self.stops("peak-stable", 2, [[5, 1], [5, 2], [5, 2], [5, 2]]), (4, "peak-stable"))
        self.assertIsNone(self.stops("peak-stable", 3, [[]] * 9))
        self.assertIsNone(self.stops("peak-stable", 3, [[n] for n in range(1, 99)]))
        self.assertEqual(self.stops("steps", 3, [[]] * 9), (3, "steps"))
        self.assertIsNone(self.stops("exit", 3, [[5]] * 9))

    def test_several_optimizers_are_one_step(self):
        counter, critic, generator = stop.StepCounter(), Optimizer(), Optimizer()
        for _ in range(3):
            counter.stepped(critic)
            counter.stepped(generator)
        self.assertEqual(counter.steps, 3)
        counter = stop.StepCounter()
        for optimizer in [critic] * 5 + [generator] + [critic] * 5 + [generator]:
            counter.stepped(optimizer)
        self.assertEqual(counter.steps, 10)

    def test_cudnn_versions(self):
        self.assertEqual(watch.format_cudnn(92600), "9.26.0")
        self.assertEqual(watch.format_cudnn(90100), "9.1.0")
        self.assertEqual(watch.format_cudnn(8902), "8.9.2")


class FakeTorch(types.SimpleNamespace):
    """As much of torch as the watcher touches, with memory that the test sets."""

    def __init__(self):
        self.reserved, self.allocated = 0, 0
        native = types.SimpleNamespace(
            _cuda_getDeviceCount=lambda: 1, _cuda_memoryStats=lambda index: self.stats(),
            _cuda_resetPeakMemoryStats=lambda device: setattr(self, "reserved", 0),
        )
        super().__init__(_C=native, cuda=types.SimpleNamespace(_initialized=True), is_grad_enabled=lambda: True)
        self.reserved = self.allocated = 0

    def stats(self):
        return {"reserved_bytes": {"all": {"peak": self.reserved, "current": 7}},
                "allocated_bytes": {"all": {"peak": self.allocated, "current": 5}}}


class Watching(support.RunCase):
    def watcher(self):
        torch = FakeTorch()
        rec = record.Record(self.run_folder)
        watcher = watch.Watcher(torch, rec, {"stop": {"mode": "exit", "steps": 3}})
        rec.current_memory = watcher.peaks
        return torch, rec, watcher

    def test_peaks_survive_a_reset(self):
        torch, rec, watcher = self.watcher()
        watcher.keep_across_resets()
        torch.reserved, torch.allocated = 100, 90
        torch._C._cuda_resetPeakMemoryStats(0)
        torch.reserved, torch.allocated = 40, 30
        rec.write()
        self.assertEqual(self.records()[0]["devices"], [{"index": 0, "reserved_peak_bytes": 100, "allocated_peak_bytes": 90}])

    def test_caught_then_fatal(self):
        torch, rec, watcher = self.watcher()
        watcher.out_of_memory(0, 1 << 30, 10, 3)
        first = self.records()[0]
        self.assertEqual((first["oom"]["fatal"], first["oom"]["allocated_bytes"], first["oom"]["reserved_bytes"]), (False, 5, 7))
        self.assertEqual(len(first["warnings"]), 1)
        self.assertIn("1.00 GiB", first["warnings"][0])
        self.assertEqual(first["oom"]["site"]["file"], os.path.abspath(__file__))
        rec.steps = 1
        watcher.leaving(1)
        self.assertFalse(rec.oom["fatal"])
        watcher.out_of_memory(0, 2 << 30, 10, 3)
        watcher.leaving(0)
        self.assertFalse(rec.oom["fatal"])
        watcher.leaving(1)
        last = self.records()[0]
        self.assertTrue(last["oom"]["fatal"])
        self.assertEqual((last["oom"]["step"], len(last["warnings"])), (2, 1))

    def test_error_outside_the_allocator(self):
        torch, rec, watcher = self.watcher()
        torch.cuda.current_device, torch.cuda.mem_get_info = (lambda: 0), (lambda device: (11, 12))
        try:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        except RuntimeError as error:
            watcher.failed(error)
        self.assertTrue(rec.oom["fatal"])
        self.assertEqual((rec.oom["free_bytes"], rec.oom["site"]["function"]), (11, "test_error_outside_the_allocator"))

    def test_a_look_at_the_stack_keeps_nothing_of_it(self):
        # Without the collector: what would stay until its next round is what a program that goes on runs into.
        class Held:
            pass

        def work():
            held = Held()
            sites.where()
            return weakref.ref(held)

        gc.disable()
        try:
            self.assertIsNone(work()())
        finally:
            gc.enable()

    def test_a_refusal_that_no_error_tells_of_was_passed_over_by_torch_itself(self):
        torch, rec, watcher = self.watcher()
        torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
        watcher.hear_errors()
        watcher.out_of_memory(0, 5 << 30, 0, 0)
        # It is written, in case that the process dies now, and forgotten when it has not.
        self.assertEqual(self.written(rec)["oom"]["requested_bytes"], 5 << 30)
        rec.write()
        self.assertIsNone(self.written(rec)["oom"])
        self.assertEqual(rec.warnings, [])

        watcher.out_of_memory(0, 6 << 30, 0, 0)
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        except torch.OutOfMemoryError:
            pass
        rec.write()
        written = self.written(rec)
        self.assertEqual((written["oom"]["requested_bytes"], written["oom"]["fatal"]), (6 << 30, False))
        self.assertIn("caught an out-of-memory error", written["warnings"][0])

        watcher.out_of_memory(0, 7 << 30, 0, 0)
        error = torch.OutOfMemoryError("CUDA out of memory.")
        watcher.failed(error)
        written = self.written(rec)
        self.assertEqual((written["oom"]["requested_bytes"], written["oom"]["fatal"]), (7 << 30, True))

    def test_without_an_observer_the_errors_themselves_are_noted(self):
        torch, rec, watcher = self.watcher()
        torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
        torch.cuda.current_device, torch.cuda.mem_get_info = (lambda: 0), (lambda device: (11, 12))
        watcher._observes = False
        watcher.hear_errors()
        torch.OutOfMemoryError("Currently allocated     : 1.75 GiB\nRequested               : 256.00 MiB")
        found = self.written(rec)["oom"]
        self.assertEqual((found["requested_bytes"], found["free_bytes"], found["fatal"]), (256 << 20, 11, False))

    def written(self, rec):
        with open(os.path.join(rec.folder, "hook", "%d.json" % os.getpid())) as file:
            return json.load(file)


if __name__ == "__main__":
    unittest.main()

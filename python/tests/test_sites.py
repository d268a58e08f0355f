"""Sites, phases, recognition of errors and the rule for stopping, on stacks and sources made by hand."""

import gc
import json
import linecache
import os
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
import weakref

import support

from oomph import module_path, record, sites, stop, watcher

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

    def test_where_an_installer_left_its_records_packages_are(self):
        with tempfile.TemporaryDirectory() as folder:
            libs, bundle, plain = (os.path.join(folder, name) for name in ("libs", "bundle", "plain"))
            for one in (os.path.join(libs, "a-1.0.dist-info"), os.path.join(bundle, "b-1.0.dist-info"), os.path.join(bundle, "app"), plain):
                os.makedirs(one)
            paths = ["", plain, bundle, libs, os.path.join(folder, "none.zip")]
            self.assertEqual(sites._installed_elsewhere(paths, [os.path.join(bundle, "app"), plain]), [libs + os.sep])
            self.assertEqual(sites._installed_elsewhere(paths, [bundle]), [libs + os.sep])

    def test_a_module_that_was_made_meanwhile_is_a_librarys(self):
        with tempfile.TemporaryDirectory() as folder:
            names = [os.path.join(folder, name) for name in ("layer.py", "train.py", "script.py")]
            for name in names:
                with open(name, "w") as file:
                    file.write("pass\n")
            os.utime(names[1], (1e9, 1e9))
            modules = {"oomph_test_%d" % place: types.SimpleNamespace(__file__=name) for place, name in enumerate(names[:2])}
            with unittest.mock.patch.dict(sys.modules, modules):
                self.assertEqual([sites.is_user_file(name) for name in names], [False, True, True])

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


    def test_a_forward_without_gradients_in_a_training_step_is_no_evaluation(self):
        trl = ("/v/site-packages/trl/trainer/dpo_trainer.py", "compute_ref_log_probs")
        step = ("/v/site-packages/transformers/trainer.py", "training_step")
        user = ("/home/u/train.py", "<module>")
        self.assertEqual(self.phase(CALL, trl, step, user, grad_enabled=False), "forward")
        self.assertEqual(self.phase(CALL, trl, ("/v/site-packages/transformers/trainer.py", "prediction_step"), step, user, grad_enabled=False), "eval")
        # In a loop of the user's own, the model and the name of the function tell.
        self.assertEqual(self.phase(CALL, user, grad_enabled=False, evaluates=lambda: False), "forward")
        self.assertEqual(self.phase(CALL, ("/home/u/train.py", "run_validation"), user, grad_enabled=False, evaluates=False), "eval")
        self.assertEqual(self.phase(("/home/u/train.py", "evaluate"), user, grad_enabled=False), "eval")
        self.assertEqual(self.phase(CALL, ("/home/u/train.py", "retrieval"), user, grad_enabled=False, evaluates=False), "forward")

    def test_phases_of_a_pipeline(self):
        pipeline = "/v/site-packages/diffusers/pipelines/flux/pipeline_flux.py"
        call = (pipeline, "__call__")
        self.assertEqual(self.phase(CALL, (pipeline, "encode_prompt"), call, grad_enabled=False), "text-encoding")
        self.assertEqual(self.phase(CALL, call, grad_enabled=False), "denoising")
        decode = ("/v/site-packages/diffusers/models/autoencoders/autoencoder_kl.py", "decode")
        self.assertEqual(self.phase(CALL, decode, call, grad_enabled=False), "decoding")
        self.assertIsNone(self.phase(call, grad_enabled=False))

    def test_saving_and_losses(self):
        trainer = ("/v/site-packages/transformers/trainer.py", "_save_checkpoint")
        self.assertEqual(self.phase(trainer, ("/v/site-packages/transformers/trainer.py", "_inner_training_loop")), "saving")
        self.assertEqual(self.phase((T + "serialization.py", "save"), ("/home/u/train.py", "main")), "saving")
        self.assertEqual(self.phase((T + "nn/functional.py", "cross_entropy"), ("/home/u/train.py", "main")), "forward")


class LibraryLines(unittest.TestCase):
    """The line of a library below the user's."""

    def stack(self, *files):
        """Run a stack of functions of these files, the user's first, and give the innermost one's frame's library line."""
        function = lambda: sites.library_site_of_frame(sys._getframe(1))
        for name in reversed(files):
            function = run(name, "def forward():\n    return inner()\n", inner=function)["forward"]
        return function()

    def test_a_models_line_says_more_than_pytorchs(self):
        model = "/v/site-packages/transformers/models/llama/modeling_llama.py"
        found = self.stack("/home/u/train.py", model, T + "nn/modules/module.py", T + "nn/modules/linear.py")
        self.assertEqual((found["file"], found["line"], found["function"]), (model, 2, "forward"))
        # What only passes the call on is left out; PyTorch's own line is better than none.
        found = self.stack("/home/u/train.py", T + "nn/modules/module.py", T + "nn/modules/linear.py")
        self.assertEqual(found["file"], T + "nn/modules/linear.py")

    def test_what_overrides_torch_for_a_subclass_says_nothing(self):
        inner = lambda: sites.library_site_of_frame(sys._getframe(1))
        override = "def __torch_function__():\n    return inner()\n"
        inner = run("/v/site-packages/monai/data/meta_tensor.py", override, inner=inner)["__torch_function__"]
        layer = "/v/site-packages/monai/networks/blocks/convolutions.py"
        for name in (layer, "/home/u/train.py"):
            inner = run(name, "def forward():\n    return inner()\n", inner=inner)["forward"]
        self.assertEqual(inner()["file"], layer)

    def test_only_what_the_users_line_calls_counts(self):
        self.assertIsNone(self.stack("/v/site-packages/torchrun/main.py", "/home/u/train.py"))
        self.assertIsNone(self.stack("/home/u/train.py", T + "nn/modules/module.py"))


class Cells(unittest.TestCase):
    """Lines of notebooks."""

    def test_the_number_of_a_cell(self):
        from oomph import notebook

        self.assertEqual(notebook.cell_of("<ipython-input-12-0a1b>"), 12)
        self.assertEqual(notebook.cells(), [], "no shell runs here")
        for name in ("/tmp/ipykernel_7/99.py", "/home/u/train.py", "<stdin>"):
            self.assertIsNone(notebook.cell_of(name))

    def test_ipython_knows_the_cell_of_a_temporary_file(self):

        name = "/tmp/ipykernel_7/99.py"
        compiler = types.SimpleNamespace(_filename_map={name: 5})
        shell = types.SimpleNamespace(initialized=lambda: True, instance=lambda: types.SimpleNamespace(compile=compiler))
        module = types.SimpleNamespace(InteractiveShell=shell)
        linecache.cache[name] = (9, None, ["x = 1\n", "trainer.train()\n"], name)
        with unittest.mock.patch.dict(sys.modules, {"IPython.core.interactiveshell": module}):
            site = run(name, "\nfound = where(frame())\n", where=sites.site_of_frame, frame=lambda: sys._getframe(1))["found"]
        self.assertEqual((site["cell"], site["line"], site["text"]), (5, 2, "trainer.train()"))


class Modules(unittest.TestCase):
    """Which module of which model a stack is in."""

    class Part:
        def __init__(self, **children):
            self._modules = children
            self.training = True

        def named_modules(self, prefix=""):
            yield prefix, self
            for name, child in self._modules.items():
                yield from child.named_modules(prefix + "." + name if prefix else name)

        def parameters(self):
            return iter(())

    class Model(Part):
        pass

    class DistributedDataParallel(Part):
        pass

    def called(self, *modules):
        """The modules that call each other on a stack, the outermost first."""
        call = run(LIBRARY, "def _call_impl(self, inner):\n    return inner()\n")["_call_impl"]
        function = lambda: module_path.called(sys._getframe())
        for module in reversed(modules):
            function = lambda module=module, inner=function: call(module, inner)
        return function()

    def test_a_module_has_its_path_in_the_model(self):
        mlp = self.Part()
        model = self.Model(model=self.Part(layers=self.Part(**{"17": self.Part(mlp=mlp)})))
        self.assertEqual(self.called(model, mlp).names(), ("model.layers.17.mlp", "Model"))
        wrapped = self.DistributedDataParallel(module=model)
        self.assertEqual(self.called(wrapped, model, mlp).names(), ("model.layers.17.mlp", "Model"))
        self.assertEqual(self.called(model).names(), (None, "Model"))
        self.assertIsNone(self.called())

    def test_a_model_in_training_mode_does_not_evaluate(self):
        model = self.Model()
        self.assertTrue(self.called(model).training)
        model.training = False
        self.assertFalse(self.called(model).training)


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

    def test_a_notebook_is_found_by_its_cells(self):
        from oomph import notebook

        with tempfile.TemporaryDirectory() as folder:
            for name, source in (("a", ["x = 1\n", "y = 2"]), ("b", "import torch\n")):
                cells = [{"cell_type": "markdown", "source": "z"}, {"cell_type": "code", "source": source}]
                with open(os.path.join(folder, name + ".ipynb"), "w") as file:
                    json.dump({"cells": cells}, file)
            paths = [os.path.join(folder, name) for name in ("a.ipynb", "b.ipynb", "gone.ipynb")]
            argv, sys.argv = sys.argv, ["nbconvert", *paths]
            known, typed = notebook._notebooks, notebook._source_of
            try:
                notebook._notebooks = None
                for source, path in (("import torch", paths[1]), ("x = 1\ny = 2", paths[0]), ("other", None)):
                    notebook._source_of = lambda number, source=source: source
                    self.assertEqual(notebook.file_of("<ipython-input-3-0a1b>"), path)
                self.assertIsNone(notebook.file_of("train.py"))
            finally:
                sys.argv, notebook._notebooks, notebook._source_of = argv, known, typed

    def test_a_card_that_torch_refused_itself(self):
        from oomph import record

        module = {"__name__": "torch.cuda"}
        exec("def get_device_properties(device):\n    raise AssertionError('Invalid device id')", module)
        for given, asked in ((1, 1), (types.SimpleNamespace(index=3), 3), ("cuda", None), (True, None)):
            try:
                module["get_device_properties"](given)
            except AssertionError as error:
                self.assertEqual(record._asked_card(error.__traceback__), asked)
        try:
            raise ValueError
        except ValueError as error:
            self.assertIsNone(record._asked_card(error.__traceback__))

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

    def test_each_thread_has_steps_of_its_own(self):
        counter, turns = stop.StepCounter(), [threading.Semaphore(1), threading.Semaphore(0)]

        def train(own):
            optimizer = Optimizer()
            for _ in range(20):
                turns[own].acquire()
                counter.stepped(optimizer)
                turns[1 - own].release()

        threads = [threading.Thread(target=train, args=(own,)) for own in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(counter.steps, 40)

    def test_the_next_fold_begins_an_iteration(self):
        counter = stop.StepCounter()
        for fold in range(3):
            critic, generator = Optimizer(), Optimizer()
            counter.made(critic)
            counter.made(generator)
            for _ in range(40):
                counter.stepped(critic)
                counter.stepped(generator)
            self.assertEqual(counter.steps, 40 * (fold + 1))

    def test_cudnn_versions(self):
        self.assertEqual(watcher.format_cudnn(92600), "9.26.0")
        self.assertEqual(watcher.format_cudnn(90100), "9.1.0")
        self.assertEqual(watcher.format_cudnn(8902), "8.9.2")


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
    def observer(self):
        torch = FakeTorch()
        rec = record.Record(self.run_folder)
        observer = watcher.Watcher(torch, rec, {"stop": {"mode": "exit", "steps": 3}})
        rec.current_memory = observer.peaks
        return torch, rec, observer

    def test_peaks_survive_a_reset(self):
        torch, rec, observer = self.observer()
        observer.keep_across_resets()
        torch.reserved, torch.allocated = 100, 90
        torch._C._cuda_resetPeakMemoryStats(0)
        torch.reserved, torch.allocated = 40, 30
        rec.write()
        self.assertEqual(self.records()[0]["devices"], [{"index": 0, "reserved_peak_bytes": 100, "allocated_peak_bytes": 90}])

    def test_caught_then_fatal(self):
        torch, rec, observer = self.observer()
        observer.out_of_memory(0, 1 << 30, 10, 3)
        first = self.records()[0]
        self.assertEqual((first["oom"]["fatal"], first["oom"]["allocated_bytes"], first["oom"]["reserved_bytes"]), (False, 5, 7))
        self.assertEqual(len(first["warnings"]), 1)
        self.assertIn("1.00 GiB", first["warnings"][0])
        self.assertEqual(first["oom"]["site"]["file"], os.path.abspath(__file__))
        rec.steps = 1
        observer.leaving(1)
        self.assertFalse(rec.oom["fatal"])
        observer.out_of_memory(0, 2 << 30, 10, 3)
        observer.leaving(0)
        self.assertFalse(rec.oom["fatal"])
        observer.leaving(1)
        last = self.records()[0]
        self.assertTrue(last["oom"]["fatal"])
        self.assertEqual((last["oom"]["step"], len(last["warnings"])), (2, 1))

    def test_error_outside_the_allocator(self):
        torch, rec, observer = self.observer()
        torch.cuda.current_device, torch.cuda.mem_get_info = (lambda: 0), (lambda device: (11, 12))
        try:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        except RuntimeError as error:
            observer.failed(error)
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

    def test_a_refusal_that_no_error_reports_was_passed_over_by_torch_itself(self):
        torch, rec, observer = self.observer()
        torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
        observer.hear_errors()
        observer.out_of_memory(0, 5 << 30, 0, 0)
        # It is written, in case that the process dies now, and forgotten when it has not.
        self.assertEqual(self.written(rec)["oom"]["requested_bytes"], 5 << 30)
        rec.write()
        self.assertIsNone(self.written(rec)["oom"])
        self.assertEqual(rec.warnings, [])

        observer.out_of_memory(0, 6 << 30, 0, 0)
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        except torch.OutOfMemoryError:
            pass
        rec.write()
        written = self.written(rec)
        self.assertEqual((written["oom"]["requested_bytes"], written["oom"]["fatal"]), (6 << 30, False))
        self.assertIn("caught an out-of-memory error", written["warnings"][0])

        observer.out_of_memory(0, 7 << 30, 0, 0)
        error = torch.OutOfMemoryError("CUDA out of memory.")
        observer.failed(error)
        written = self.written(rec)
        self.assertEqual((written["oom"]["requested_bytes"], written["oom"]["fatal"]), (7 << 30, True))

    def test_an_error_that_passes_on_the_allocators_words_is_the_allocators(self):
        torch, rec, observer = self.observer()
        torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
        observer.hear_errors()
        observer.out_of_memory(0, 48 << 20, 0, 0)
        rec.refusal = dict(rec.refusal, module="rpn")
        error = RuntimeError("OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. (originally from)")
        self.assertFalse(sites.passes_on(error, dict(rec.refusal, requested_bytes=50 << 20)))
        observer.failed(error)
        written = self.written(rec)["oom"]
        self.assertEqual((written["fatal"], written["module"]), (True, "rpn"))

    def test_without_an_observer_the_errors_themselves_are_noted(self):
        torch, rec, observer = self.observer()
        torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
        torch.cuda.current_device, torch.cuda.mem_get_info = (lambda: 0), (lambda device: (11, 12))
        observer._observes = False
        observer.hear_errors()
        torch.OutOfMemoryError("Currently allocated     : 1.75 GiB\nRequested               : 256.00 MiB")
        found = self.written(rec)["oom"]
        self.assertEqual((found["requested_bytes"], found["free_bytes"], found["fatal"]), (256 << 20, 11, False))

    def written(self, rec):
        with open(os.path.join(rec.folder, "hook", "%d.json" % os.getpid())) as file:
            return json.load(file)


if __name__ == "__main__":
    unittest.main()

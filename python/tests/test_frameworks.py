"""Frameworks other than PyTorch: what is read from their errors, and how their pools are counted."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import support

from oomph import record, sites
from oomph.frameworks import described, jax, kept, keras, onnxruntime, tensorflow, watch, xgboost
from oomph.frameworks.tensorflow import _TEXTS as TENSORFLOW_TEXTS


def error_of(module, text, base=RuntimeError):
    """An exception whose class says that it comes from `module`."""
    return type("Error", (base,), {"__module__": module})(text)


class Settings(support.RunCase):
    def test_a_program_on_a_real_card_gets_none(self):
        """They are for a card that computes nothing; on a real one they would cost speed."""
        with open(os.path.join(self.user, "jax.py"), "w") as file:
            file.write("__version__ = '0'\ndef __getattr__(name): return lambda *args, **kwargs: None\n")
        asked = "import jax, os; print(os.environ.get('XLA_FLAGS'), os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE'))"
        self.configure(guard={"quiet": True})
        self.assertEqual(self.passes(asked), "None None\n")
        open(os.path.join(self.run_folder, "ledger"), "w").close()
        self.assertEqual(self.passes(asked), "--xla_gpu_autotune_level=0 false\n")

    def test_a_pool_is_as_the_run_is_to_see_it(self):
        with open(os.path.join(self.user, "jax.py"), "w") as file:
            file.write("__version__ = '0'\ndef __getattr__(name): return lambda *args, **kwargs: None\n")
        open(os.path.join(self.run_folder, "ledger"), "w").close()
        name = "XLA_PYTHON_CLIENT_PREALLOCATE"
        asked = "import os; os.environ.update(%s); import jax; print(os.environ.get('" + name + "'))"
        for pools, by_default, decided in (
            ("as-needed", "false", "true"), ("always-as-needed", "false", "false"), ("as-on-a-card", "None", "true"),
        ):
            self.configure(pools=pools)
            self.assertEqual(self.passes(asked % {}), by_default + "\n", pools)
            self.assertEqual(self.passes(asked % {name: "true"}), decided + "\n", pools)


class Names(unittest.TestCase):
    def test_what_is_called_an_evaluation_is_one(self):
        for name in ("jit_eval_step", "jit_evaluate", "jit_test_step", "validate"):
            self.assertTrue(sites.is_named_for_evaluation(name), name)
        for name in ("jit_train_and_evaluate", "jit_retrieval", "jit_latest", "jit_step", None):
            self.assertFalse(sites.is_named_for_evaluation(name), name)


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


class Assertions(unittest.TestCase):
    def test_what_a_card_would_compute_is_not_asserted(self):
        asserted = []
        module = types.SimpleNamespace(Assert=lambda condition, data: asserted.append(condition))
        fake = types.SimpleNamespace(no_op=lambda: "nothing", is_symbolic_tensor=lambda value: value == "symbolic")
        tensorflow._pass_assertions(module)
        with unittest.mock.patch.dict(sys.modules, {"tensorflow": fake}):
            self.assertEqual(module.Assert("symbolic", []), "nothing")
            module.Assert(False, [])
        self.assertEqual(asserted, [False])


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


class Caught(unittest.TestCase):
    """Errors that a program may catch are known when they are made."""

    def setUp(self):
        class Refused(RuntimeError):
            def __init__(self, text):
                super().__init__()
                self.text = text

            def __str__(self):
                return self.text

        class Wrapped(Refused):
            pass

        self.Refused, self.Wrapped = Refused, Wrapped
        self.watcher = watch.FrameworkWatcher(record.Record("/nonexistent"), TENSORFLOW_TEXTS)
        self.watcher.hear(Refused)

    def refuse(self, size):
        raise self.Refused("Out of memory while trying to allocate %d bytes." % size)

    def test_a_search_for_the_largest_batch_has_caught_each_of_its_errors(self):
        for size in (64, 32):
            with self.assertRaises(self.Refused):
                self.refuse(size)
        with self.assertRaises(self.Refused):
            raise self.Refused("shapes do not match")
        oom = self.watcher.record.oom
        self.assertEqual((oom["requested_bytes"], oom["fatal"]), (32, False))
        self.assertEqual(oom["site"]["function"], "refuse")
        self.assertEqual(sum("went on" in one for one in self.watcher.record.warnings), 1)

    def test_the_error_that_was_not_caught_ends_the_program(self):
        try:
            self.refuse(64)
        except self.Refused as error:
            # TensorFlow says where in a graph the error was, and Keras takes its own frames away.
            error.text = "Graph execution error: Out of memory while trying to allocate 64 bytes."
            self.watcher.failed(error.with_traceback(None))
        oom = self.watcher.record.oom
        self.assertEqual((oom["requested_bytes"], oom["fatal"]), (64, True))
        self.assertEqual(oom["site"]["function"], "refuse")
        self.assertEqual(self.watcher.record.warnings, [])

    def test_an_error_whose_text_is_that_of_another_made_for_it_is_looked_at_once(self):
        kind, made = self.Refused, []

        class NotOk(Exception):
            """As TensorFlow's core raises it."""

            def __str__(self):
                made.append(1)
                return str(kind("Out of memory while trying to allocate 64 bytes."))

        for _ in range(3):
            try:
                raise NotOk()
            except NotOk:
                self.Refused("Out of memory while trying to allocate 64 bytes.")
        self.assertEqual(self.watcher.record.oom["requested_bytes"], 64)
        self.assertLess(len(made), 30)

    def test_an_error_that_is_met_again_or_wrapped_is_one(self):
        first = self.Refused("Out of memory while trying to allocate 64 bytes.")
        self.Refused(str(first))
        self.Wrapped("Exception encountered when calling Dense.call(). " + str(first))
        try:
            raise first
        except self.Refused:
            self.Refused("Out of memory while trying to allocate 8 bytes.")
        self.assertEqual(self.watcher.record.warnings, [])
        self.assertEqual(self.watcher.record.oom["message"], str(first))

    def test_the_evaluation_of_keras_is_known_when_the_error_is_made(self):
        watcher = tensorflow.TensorFlowWatcher(record.Record("/nonexistent"), {"stop": {"mode": "until-exit"}})
        watcher.hear(self.Refused)
        names = {"refuse": self.refuse}
        exec(compile("def evaluate():\n    refuse(64)\n", "/v/site-packages/keras/src/trainer.py", "exec"), names)
        with self.assertRaises(self.Refused):
            names["evaluate"]()
        self.assertEqual(watcher.record.oom["phase"], "eval")


class Places(unittest.TestCase):
    def watcher(self):
        watcher = jax.JaxWatcher(record.Record("/nonexistent"))
        site = lambda line: {"file": "/srv/train.py", "line": line, "function": "main"}
        watcher.compilations = [
            jax._Compiled("jit_update", {1 << 28, 16 << 30}, 17 << 30, site(57), 16 << 30),
            jax._Compiled("jit_subtract", {381 << 30}, 381 << 30, site(25), 381 << 30),
            jax._Compiled("jit__mean", {4}, 382 << 30, site(27), 4),
        ]
        return watcher, site

    def test_an_error_that_comes_late_belongs_to_the_line_that_called_the_program(self):
        watcher, site = self.watcher()
        text = "Out of memory while trying to allocate 16.00GiB. [executable_name='jit_update']"
        self.assertEqual(watcher.place(text, site(58)), ("jit_update", site(57)))
        self.assertEqual(len(watcher.record.warnings), 1, "it is said where the error came")
        self.assertEqual(watcher.place(text, site(57)), ("jit_update", site(57)))
        self.assertEqual(len(watcher.record.warnings), 1)

    def test_an_error_that_was_handed_on_names_the_wrong_program(self):
        watcher, site = self.watcher()
        text = "Out of memory while trying to allocate 381.00GiB. [executable_name='jit__mean']"
        self.assertEqual(watcher.place(text, site(27)), ("jit_subtract", site(25)))

    def test_a_program_that_got_its_memory_did_not_fail(self):
        watcher, site = self.watcher()
        # The level that the first would have brought the card to was seen, so that it ran.
        watcher.peaks = lambda: {0: (None, 6 << 30)}
        watcher.compilations = [
            jax._Compiled("jit_broadcast", {3 << 30}, 3 << 30, site(29), 3 << 30),
            jax._Compiled("jit_multiply", {3 << 30}, 6 << 30, site(29), 3 << 30),
            jax._Compiled("jit_scan", {6 << 30, 3 << 30}, 9 << 30, site(32), 6 << 30),
            jax._Compiled("jit_mean", {3 << 30}, 9 << 30, site(33), 3 << 30),
        ]
        text = "Out of memory while trying to allocate 3.00GiB. [executable_name='jit_dynamic_slice']"
        self.assertEqual(watcher.place(text, site(33)), ("jit_scan", site(32)))
        watcher.peaks = lambda: {0: (None, 9 << 30)}
        self.assertEqual(watcher._refused(text)[0], "jit_broadcast", "each has run before")

    def test_a_refusal_that_nobody_reads_is_seen_at_the_end(self):
        watcher, site = self.watcher()
        live = []
        before = sys.modules.get("jax")
        sys.modules["jax"] = types.SimpleNamespace(live_arrays=lambda: live)
        self.addCleanup(lambda: sys.modules.update({"jax": before}) if before else sys.modules.pop("jax"))
        watcher.record.limits[0] = {"bytes": 400 << 30, "scales": "share"}
        watcher._see_what_nobody_read()
        self.assertIsNone(watcher.record.oom)
        # What was compiled for its figures is larger than the pool and no failure.
        watcher.record.limits[0]["bytes"] = 100 << 30
        ran = watcher.compilations
        watcher.compilations = [one._replace(largest=0) for one in ran]
        watcher._see_what_nobody_read()
        self.assertIsNone(watcher.record.oom)
        watcher.compilations = ran
        watcher._see_what_nobody_read()
        self.assertEqual((watcher.record.oom["site"], watcher.record.oom["requested_bytes"]), (site(25), 381 << 30))

        watcher, site = self.watcher()

        def refused():
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16.00GiB.")

        live.append(types.SimpleNamespace(block_until_ready=refused))
        watcher._see_what_nobody_read()
        self.assertEqual(watcher.record.oom["site"], site(57))
        self.assertIn("does not read the results", watcher.record.warnings[-1])

    def test_what_is_not_known_is_left_as_it_is(self):
        watcher, site = self.watcher()
        text = "Out of memory while trying to allocate 900.00GiB. [executable_name='jit_other']"
        self.assertEqual(watcher.place(text, site(3)), ("jit_other", site(3)))
        self.assertEqual(watcher.place("Out of memory", None), (None, None))


class Sessions(unittest.TestCase):
    def setUp(self):
        self.watcher = onnxruntime.OnnxRuntimeWatcher(record.Record("/nonexistent"))

    def session(self, have):
        class Session:
            def _create_inference_session(self, providers, provider_options):
                self._sess = types.SimpleNamespace(get_providers=lambda: have)

        self.watcher.watch_sessions(Session)
        return Session()

    def test_work_that_is_left_to_the_cpu_is_named(self):
        cpu = ["CPUExecutionProvider"]
        self.session(cpu)._create_inference_session(cpu, None)
        self.assertIsNone(self.watcher.record.fallback, "the program asked for the CPU")
        both = ["CUDAExecutionProvider", *cpu]
        self.session(both)._create_inference_session(both, None)
        self.assertIsNone(self.watcher.record.fallback)
        self.session(cpu)._create_inference_session(both, None)
        self.assertIn("CUDAExecutionProvider", self.watcher.record.fallback)

    def test_a_name_that_is_not_quite_that_of_a_provider_is_named(self):
        cpu = ["CPUExecutionProvider"]
        self.watcher.wanted(["CudaExecutionProvider", *cpu], None)
        self.assertIsNone(self.watcher.record.fallback, "ONNX Runtime may still take the card")
        self.session(cpu)._create_inference_session(cpu, None)
        self.assertIn("spelt CUDAExecutionProvider", self.watcher.record.fallback)

    def test_who_gets_the_card_in_the_end_has_it(self):
        both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
        self.watcher.wanted(["CudaExecutionProvider", *both], None)
        self.session(both)._create_inference_session(both, None)
        self.session(both[1:])._create_inference_session(both[1:], None)
        self.assertIsNone(self.watcher.record.fallback)

    def test_a_session_that_does_not_fit_is_an_error_that_was_caught(self):
        kind = type("RuntimeException", (Exception,), {})
        self.watcher.hear_errors(types.SimpleNamespace(RuntimeException=kind, SessionOptions=object, version="1"))
        error = kind("bfc_arena.cc: Failed to allocate memory for requested buffer of size 268435456")
        oom = self.watcher.record.oom
        self.assertEqual((oom["requested_bytes"], oom["fatal"]), (268435456, False))
        self.watcher.failed(error)
        self.assertTrue(self.watcher.record.oom["fatal"])
        self.assertFalse([one for one in self.watcher.record.warnings if "went on" in one])

    def test_the_limit_of_the_arena_is_the_cause_where_it_was_reached(self):
        options = {"device_id": 0, "gpu_mem_limit": 1 << 30}
        self.session(["CUDAExecutionProvider"])._create_inference_session([("CUDAExecutionProvider", options)], None)
        self.assertEqual(self.watcher.record.limits, {})
        text = "bfc_arena.cc Available memory of 0 is smaller than requested bytes of 411041792"
        self.watcher.failed(RuntimeError(text))
        self.assertEqual(self.watcher.record.limits, {0: {"bytes": 1 << 30, "scales": "fixed"}})
        self.assertEqual(self.watcher.record.oom["requested_bytes"], 411041792)
        self.assertIn("gpu_mem_limit, 1.00 GiB", self.watcher.record.warnings[0])


class Numba(unittest.TestCase):
    def test_an_allocation_names_the_users_line_while_it_is_under_way(self):
        from oomph.frameworks import numba

        seen = []

        class Context:
            def memalloc(self, size):
                seen.append(("asked", size))
                raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")

        driver = types.SimpleNamespace(Context=Context, host_to_device=lambda target, source: seen.append("copied"))
        numba.name_lines(driver, lambda *place: seen.append(place))
        with unittest.mock.patch.object(sites, "is_user_file", lambda name: name == __file__):
            with self.assertRaises(RuntimeError):
                driver.Context().memalloc(7)
            line = sys._getframe().f_lineno - 1
            driver.host_to_device(1, 2)
        here = os.path.abspath(__file__).encode()
        name = b"test_an_allocation_names_the_users_line_while_it_is_under_way"
        self.assertEqual(seen[:3], [(here, line, name), ("asked", 7), (None, 0, None)])
        self.assertEqual(seen[3:], [(here, line + 2, name), "copied", (None, 0, None)])

    def test_arrays_on_the_card_are_seen_in_containers(self):
        from oomph.frameworks import numba

        watcher = numba.NumbaWatcher(record.Record("/nonexistent"), ("cuda_error_out_of_memory",))
        array = types.SimpleNamespace(__cuda_memory__=True, alloc_size=4096)
        self.assertEqual(list(watcher.on_card([array, 3])), [(id(array), 4096)])
        self.assertTrue(watcher.is_oom(RuntimeError("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")))


class Llama(unittest.TestCase):
    def test_a_model_that_cannot_be_loaded_is_for_lack_of_memory_where_the_card_refused(self):
        from oomph.frameworks import llama

        watcher = llama.LlamaWatcher(record.Record("/nonexistent"), llama._TEXTS)
        for text in ("Failed to load model from file: model.gguf", "Failed to create llama_context"):
            with unittest.mock.patch.object(llama, "refusals", lambda: 1):
                self.assertTrue(watcher.is_oom(ValueError(text)))
                self.assertFalse(watcher.is_oom(ValueError("no such file")))
            with unittest.mock.patch.object(llama, "refusals", lambda: 0):
                self.assertFalse(watcher.is_oom(ValueError(text)))
        self.assertEqual(llama.refusals(), 0)
        # Cython's frames have the path that its author had.
        self.assertFalse(sites.is_user_file("cyllama/llama/llama_cpp.pyx"))


class Kept(unittest.TestCase):
    """Containers that grow on the card: seen in the frames of an error, by the program's own lines."""

    def found(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w") as file:
                file.write(text)

            class Array:
                nbytes = 1 << 20

            def on_card(value):
                parts = value if isinstance(value, (list, tuple)) else [value]
                return [(id(part), part.nbytes) for part in parts if isinstance(part, Array)]

            try:
                exec(compile(text, path, "exec"), {"Array": Array})
            except MemoryError as error:
                with unittest.mock.patch.object(sites, "is_user_file", lambda name: name == path):
                    return [(one["name"], one["line"], one["bytes"]) for one in kept.growing(error.__traceback__, on_card)]

    def test_a_list_that_the_loop_under_way_fills(self):
        text = "def main():\n    seen = []\n    for step in range(9):\n        seen.append((Array(), Array()))\n"
        self.assertEqual(self.found(text + "        if step == 5:\n            raise MemoryError\nmain()\n"), [("seen", 4, 12 << 20)])

    def test_a_list_that_the_line_that_died_reads(self):
        text = "seen = []\nfor step in range(4):\n    seen.append(Array())\ndef join(parts):\n    raise MemoryError\n"
        self.assertEqual(self.found(text + "whole = join(seen)\n"), [("seen", 3, 4 << 20)])

    def test_weights_that_were_made_in_a_loop_before_are_not_kept(self):
        text = "layers = []\nfor size in range(4):\n    layers.append(Array())\nfor step in range(4):\n    raise MemoryError\n"
        self.assertEqual(self.found(text), [])

    def test_numbers_are_not_kept(self):
        text = "losses = []\nfor step in range(4):\n    losses.append(0.5)\n    if step:\n        raise MemoryError\n"
        self.assertEqual(self.found(text), [])


class Descriptions(unittest.TestCase):
    def test_who_asks_for_gradients_or_makes_an_optimizer_trains(self):
        own = record.Record("/nonexistent")
        seen = described.of(own)
        self.assertEqual(own.program.as_dict()["task"], "inference")
        seen.training(64)
        seen.training(None)
        seen.optimizer(types.SimpleNamespace())
        self.assertEqual(own.program.as_dict()["task"], "training")
        self.assertEqual(own.program.as_dict()["loaders"], [{"batch_size": 64, "first_batch": {}}])
        self.assertEqual([made["class"] for made in own.program.as_dict()["optimizers"]], ["SimpleNamespace"])

    def test_what_pytorch_describes_is_left_to_it(self):
        own = record.Record("/nonexistent")
        own.program = theirs = types.SimpleNamespace(as_dict=dict)
        described.of(own).training(8)
        self.assertIs(own.program, theirs)


class KerasPasses(unittest.TestCase):
    def test_a_fit_says_what_is_trained(self):
        seen = self.run_pass("fit", [1, 2, 2, 2])[2].program.as_dict()
        self.assertEqual((seen["task"], seen["loaders"][0]["batch_size"]), ("training", 64))

    def run_pass(self, name, peaks, stop_mode="peak-stable"):
        found = iter(peaks)
        own = record.Record("/nonexistent")
        watcher = types.SimpleNamespace(
            record=own, peaks=lambda: {0: (None, next(found, peaks[-1]))}, described=described.of(own)
        )
        loops = keras.KerasLoops(watcher)
        loops.shorten(stop_mode, 3)

        class EpochIterator:
            num_batches = 100
            data_adapter = types.SimpleNamespace(on_epoch_end=lambda: None, batch_size=64)

            def _enumerate_iterator(self):
                yield from range(100)

        loops.attach(types.SimpleNamespace(EpochIterator=EpochIterator))
        source = "def %s(self, steps, epoch=1):\n    return sum(1 for _ in steps._enumerate_iterator())\n" % name
        scope = {}
        exec(compile(source, "/lib/keras/src/backend/tensorflow/trainer.py", "exec"), scope)
        model = types.SimpleNamespace(stop_training=False)
        return scope[name](model, EpochIterator()), model, watcher.record

    def test_a_pass_ends_with_its_peak_and_fit_with_its_second_epoch(self):
        count, model, kept = self.run_pass("fit", [10, 20, 30])
        self.assertEqual((count, model.stop_training), (6, True))
        self.assertEqual([(one["kind"], one["iterations"], one["of"]) for one in kept.shortened], [("training", 6, 100)])
        count, model, _ = self.run_pass("evaluate", [10])
        self.assertEqual((count, model.stop_training), (4, False))

    def test_a_prediction_is_run_whole_and_so_is_what_is_to_run_to_its_exit(self):
        self.assertEqual(self.run_pass("predict", [10])[0], 100)
        self.assertEqual(self.run_pass("fit", [10], "exit")[0], 100)


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


PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

SERVED = """
import os, sys, threading
from oomph import hook, record
from oomph.frameworks import tensorflow

hook.serves = True
config = {"stop": {"mode": "exit"}}
watcher = tensorflow.TensorFlowWatcher(record.Record(sys.argv[1]), config)
watcher.attach()
hook.in_new_run(watcher.new_run)
alone = threading.active_count()
os.environ["OOMPH_RUN"] = sys.argv[1]
config["stop"] = {"mode": "peak-stable", "steps": 7}
hook.begin_again()
print(alone, threading.active_count(), watcher.rule.mode, watcher.rule.steps, watcher.loops.steps)
"""


class Attached(unittest.TestCase):
    def test_in_a_fork_server_the_thread_and_the_rule_are_those_of_the_child(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", SERVED, folder], capture_output=True, text=True, timeout=60,
                env={**os.environ, "PYTHONPATH": PYTHON},
            )
        self.assertEqual(done.stdout.split(), ["1", "2", "peak-stable", "7", "7"], done.stderr)

    def test_a_watcher_joins_the_record_and_the_end_of_the_process(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", ATTACHED, folder],
                capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=PYTHON),
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


class Boosters(unittest.TestCase):
    def setUp(self):
        class Booster:
            def set_param(self, params, value=None):
                self.seen = (params, value)

            def load_config(self, config):
                pass

            def __setstate__(self, state):
                pass

        self.record = record.Record("/nonexistent")
        self.booster = Booster
        xgboost.watch_boosters(Booster, self.record)

    def asked(self):
        return self.record.asked_for_card["libxgboost"]

    def test_the_cpu_is_no_card(self):
        booster = self.booster()
        booster.set_param({"device": "cpu", "tree_method": "hist", "max_depth": 6})
        booster.set_param([("verbosity", 1), ("gpu_id", -1)])
        booster.set_param("max_depth", 3)
        booster.load_config('{"device": "cpu"}')
        booster.__setstate__({"handle": bytearray(b"device cpu")})
        booster.__setstate__({"handle": None})
        self.assertEqual((self.asked(), booster.seen), (False, ("max_depth", 3)))

    def test_each_way_to_ask_for_a_card_is_seen(self):
        for ask in (
            lambda booster: booster.set_param({"device": "cuda"}),
            lambda booster: booster.set_param({"device": "cuda:1"}),
            lambda booster: booster.set_param([("max_depth", 2), ("tree_method", "gpu_hist")]),
            lambda booster: booster.set_param("device", "gpu"),
            lambda booster: booster.set_param(params="gpu_id", value=0),
            lambda booster: booster.load_config('{"device": "cuda:0"}'),
            lambda booster: booster.__setstate__({"handle": bytearray(b"device cuda:0")}),
        ):
            self.setUp()
            ask(self.booster())
            self.assertTrue(self.asked())


if __name__ == "__main__":
    unittest.main()

"""How flags read that were never computed, and what is remembered of reading."""

import os
import sys
import tempfile
import textwrap
import types
import unittest

from oomph import flags, record
from oomph.frameworks import readback


class Flag:
    """A flag that nothing has computed, as a framework's array: it reads as what its reader's source asks for."""

    def __init__(self, answers):
        self.answers = answers

    def __bool__(self):
        answer = flags.healthy(sys._getframe(1))
        self.answers.append(answer)
        return bool(answer)

    def all(self):
        return self


class Sources(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_with_flag(self, text):
        """The answers that a function's flag got; its exceptions are the program's."""
        file = os.path.join(self.folder, "program%d.py" % len(os.listdir(self.folder)))
        text = "import sys\n" + textwrap.dedent(text)
        with open(file, "w") as out:
            out.write(text)
        answers, names = [], {}
        exec(compile(text, file, "exec"), names)
        names["run"](Flag(answers))
        return answers

    def test_the_answer_that_raises_nothing_is_given(self):
        for body, answer in (
            ("if not x.all():\n        raise ValueError(\n            'no')", True),
            ("if x:\n        raise ValueError", False),
            ("assert x.all(), 'diverged'", True),
            ("assert not x", False),
            ("if x is None or (not x.all()):\n        raise ValueError", True),
            ("if x:\n        sys.exit(1)", False),
            ("if x:\n        pass\n    else:\n        raise ValueError", True),
            ("if bool(x) is False:\n        raise ValueError", True),
            ("ok = bool(x)\n    if not ok:\n        raise ValueError", True),
            ("bad = not x.all()\n    if bad:\n        raise ValueError", True),
        ):
            self.assertEqual(self.run_with_flag("def run(x):\n    " + body), [answer], body)

    def test_a_function_that_gives_the_flag_back_leaves_it_to_its_caller(self):
        text = """
        def valid(x):
            return bool(x.all())
        def run(x):
            if not valid(x):
                raise ValueError
        """
        self.assertEqual(self.run_with_flag(text), [True])

    def test_numbers_are_sound_in_a_healthy_run(self):
        for body, answer in (
            ("isfinite = lambda x: x\n    if isfinite(x):\n        pass", True),
            ("isnan = lambda x: x\n    if isnan(x).all():\n        return", False),
            ("isnan = lambda x: x\n    bad = isnan(x)\n    if bad:\n        return", False),
        ):
            self.assertEqual(self.run_with_flag("def run(x):\n    " + body), [answer], body)

    def test_what_says_nothing_is_not_guessed(self):
        for body in ("if x:\n        print()", "if x:\n        raise StopIteration", "while x:\n        break", "y = [1 for _ in 'a' if x]"):
            self.assertEqual(self.run_with_flag("def run(x):\n    " + body), [None], body)

    def test_without_a_source_nothing_is_known(self):
        answers, names = [], {}
        exec("def run(x):\n    assert not x", names)
        names["run"](Flag(answers))
        self.assertEqual(answers, [None])
        self.assertIsNone(flags.healthy(None))


class Reading(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "program.py")

    def fails(self, text):
        with open(self.file, "w") as out:
            out.write(textwrap.dedent(text))
        kept = record.Record("/nonexistent")
        names = {"read": lambda: kept.note_read(sys._getframe(1))}
        try:
            exec(compile(textwrap.dedent(text), self.file, "exec"), names)
        except Exception as error:
            kept.note_failure(error)
        return kept.failure

    def test_who_ends_itself_after_reading_is_known(self):
        failure = self.fails("""
        def check():
            read()
            raise ValueError("not positive")
        check()
        """)
        self.assertEqual((failure["kind"], failure["read_at"]["line"]), ("ValueError", 3))

    def test_an_error_of_another_kind_is_the_programs(self):
        for line in ("{}['loss']", "other()"):
            failure = self.fails("""
            def other():
                raise ValueError("mine")
            def train():
                read()
                %s
            train()
            """ % line)
            self.assertIsNone(failure["read_at"], line)


class Flags(list):
    """As far as an array of flags is asked here."""

    dtype, size, nbytes = types.SimpleNamespace(name="bool"), 1, 1


class Arrays(unittest.TestCase):
    def setUp(self):
        self.kept = record.Record("/nonexistent")
        filled, readback._filled = readback._filled, lambda value, number: "set" if number else "zeros"
        self.addCleanup(setattr, readback, "_filled", filled)

    def test_flags_of_tensorflow_that_came_from_the_card_are_those_of_a_healthy_run(self):
        class EagerTensor:
            def __init__(self, device, value):
                self.device, self.value = device, value

            def _numpy(self):
                return self.value

        readback.watch_tensorflow(types.SimpleNamespace(_EagerTensorBase=EagerTensor), self.kept)
        card, host = EagerTensor("/device:GPU:0", Flags([False])), EagerTensor("/device:CPU:0", Flags([False]))
        assert card._numpy(), "a healthy run passes here"
        self.assertEqual(host._numpy(), [False])
        value = card._numpy()
        self.assertEqual(value, [False], "nothing is raised here by either")
        self.assertTrue(self.kept.reads)

    def test_arrays_of_jax_that_the_host_put_on_the_card_keep_their_values(self):
        class ArrayImpl:
            def __init__(self, value):
                self.value = value

            def devices(self):
                return [types.SimpleNamespace(platform="cuda")]

            @property
            def _value(self):
                return self.value

        client = types.SimpleNamespace(ArrayImpl=ArrayImpl, batched_device_put=lambda aval, sharding, values: ArrayImpl(values[0]))
        before = sys.modules.get("jaxlib.xla_client")
        sys.modules["jaxlib.xla_client"] = client
        self.addCleanup(lambda: sys.modules.update({"jaxlib.xla_client": before}) if before else sys.modules.pop("jaxlib.xla_client"))
        readback.watch_jax(types.SimpleNamespace(ArrayImpl=ArrayImpl), self.kept, "most")
        put = client.batched_device_put(None, None, [Flags([True])])
        self.assertEqual(put._value, [True])
        computed = ArrayImpl(Flags([True]))
        isnan = lambda array: array._value
        self.assertEqual(computed._value, "zeros", "it is what lay there before")
        if isnan(computed) != "zeros":
            raise ValueError("a healthy run has none")
        self.assertEqual(client.batched_device_put(None, None, [computed])._value, "zeros", "it was moved")
        self.assertEqual(self.kept.unknown_sizes, {})
        names = {"mask": ArrayImpl(Flags([False]))}
        code = "def expand_bool_indices():\n    return mask._value\n"
        exec(compile(code, "/v/lib/python3.12/site-packages/jax/_src/numpy/indexing.py", "exec"), names)
        self.assertEqual(names["expand_bool_indices"](), "set", "the most that a mask can select")
        self.assertEqual([known["operation"] for known in self.kept.unknown_sizes.values()], ["a mask"])


if __name__ == "__main__":
    unittest.main()

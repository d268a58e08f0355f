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
        for body in ("if x:\n        print()", "while x:\n        break", "y = [1 for _ in 'a' if x]"):
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


class Arrays(unittest.TestCase):
    def test_only_flags_of_the_card_that_have_to_be_set_are(self):
        class EagerTensor:
            def __init__(self, device, value):
                self.device, self.value = device, value

            def _numpy(self):
                return self.value

        class Flags(list):
            """As far as an array of numpy goes that is asked here."""

            dtype, size, nbytes = types.SimpleNamespace(name="bool"), 1, 1

            def any(self):
                return any(self)

        kept = record.Record("/nonexistent")
        readback.watch_tensorflow(types.SimpleNamespace(_EagerTensorBase=EagerTensor), kept)
        set_here, readback._set = readback._set, lambda flags: "set"
        self.addCleanup(setattr, readback, "_set", set_here)
        card, host = EagerTensor("/device:GPU:0", Flags([False])), EagerTensor("/device:CPU:0", Flags([False]))
        assert card._numpy(), "a healthy run passes here"
        known = EagerTensor("/device:GPU:0", Flags([True]))
        self.assertEqual((host._numpy(), known._numpy()), ([False], [True]))
        value = card._numpy()
        self.assertEqual(value, [False], "nothing is raised here by either")
        self.assertTrue(kept.reads)


if __name__ == "__main__":
    unittest.main()

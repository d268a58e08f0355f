"""Tests of who is found to catch an error: by programs that are written to files and run."""

import os
import sys
import tempfile
import textwrap
import unittest

from oomph import catchers


class OutOfMemoryError(RuntimeError):
    """Stands for torch's."""


def asked(text, library=False):
    """Run a program in which `refuse()` asks who would catch an error that is raised there; what the first call found."""
    found = []

    def refuse():
        found.append(catchers.of_stack(sys._getframe().f_back, OutOfMemoryError))
        raise OutOfMemoryError("CUDA out of memory")

    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "site-packages" if library else "own", "program.py")
        os.makedirs(os.path.dirname(name))
        with open(name, "w") as file:
            file.write(textwrap.dedent(text))
        space = {"refuse": refuse, "OutOfMemoryError": OutOfMemoryError, "__name__": "program"}
        with open(name) as file:
            code = compile(file.read(), name, "exec")
        try:
            exec(code, space)
        except OutOfMemoryError:
            # The program let it pass.
            pass
    # What nobody in the program catches, this file does.
    return found[0] if found[0].file != __file__ else None


class Catchers(unittest.TestCase):
    def test_a_handler_that_names_the_error_means_it(self):
        for handler in ("except OutOfMemoryError:", "except (KeyError, OutOfMemoryError):"):
            found = asked("try:\n    refuse()\n%s\n    size = 1\n" % handler)
            self.assertTrue(found.by_program and found.names_it, handler)

    def test_one_that_reads_its_words_means_it(self):
        found = asked(
            """
            def step():
                with open(__file__ if False else "/dev/null"):
                    refuse()
            def search():
                for size in (4, 2):
                    try:
                        step()
                    except RuntimeError as error:
                        if "out of memory" not in str(error):
                            raise
            search()
            """
        )
        self.assertTrue(found.by_program and found.names_it)

    def meant(self, handler, before="", error="RuntimeError"):
        """Whether a handler of a general error asks for this one."""
        text = "%s\ndef run():\n    try:\n        refuse()\n    except %s as error:\n%s\nrun()\n" % (
            textwrap.dedent(before), error, textwrap.indent(textwrap.dedent(handler), " " * 8))
        return asked(text).names_it

    def test_what_the_code_asks_decides_however_it_is_named(self):
        for before, test in (
            ("", "'out of memory' in str(error).lower()"),
            ("", "'CUDA out of memory.' in error.args[0]"),
            ("", "str(error).startswith('CUDA out of memory')"),
            ("import re", "re.search('out of memory', str(error))"),
            ("WORDS = ('out of memory', 'CUBLAS_STATUS_ALLOC_FAILED')", "any(one in str(error) for one in WORDS)"),
            ("class Space:\n    pass\nWORD = 'out of memory'", "WORD in str(error)"),
            ("", "isinstance(error, OutOfMemoryError)"),
            ("def shrinks(e):\n    return 'out of memory' in str(e)", "shrinks(error)"),
            ("def shrinks(e):\n    words = [' out of memory.', 'other']\n    return any(w in e.args[0] for w in words)", "shrinks(error)"),
            ("def inner(e):\n    return isinstance(e, OutOfMemoryError)\ndef outer(e):\n    return inner(e) or False", "outer(error)"),
            ("class Judge:\n    def shrinks(self, e):\n        return 'out of memory' in str(e)\njudge = Judge()", "judge.shrinks(error)"),
        ):  # fmt: skip
            with self.subTest(test, before=before):
                self.assertTrue(self.meant("if %s:\n    size = 1\nelse:\n    raise\n" % test, before))

    def test_names_and_words_that_ask_nothing_do_not(self):
        for before, handler in (
            ("def zoom(e):\n    return 1", "size = zoom(error)"),
            ("def is_oom_error(e):\n    return True", "size = is_oom_error(error)"),
            ("def reduce_batch_size(n):\n    return n // 2", "size = reduce_batch_size(8)"),
            ("", "if 'zoom' in str(error):\n    size = 1"),
            ("", "if 'room' in str(error) or 'CUDA' in str(error):\n    size = 1"),
            ("", "if '' in str(error):\n    size = 1"),
            ("", "print('out of memory')"),
            ("", "message = 'out of memory: %s' % error\nprint(message)"),
            ("def report(e):\n    print('out of memory', e)", "size = report(error)"),
            ("def fails(e):\n    raise ValueError('out of memory')", "try:\n    fails(error)\nexcept ValueError:\n    size = 1"),
        ):
            with self.subTest(handler, before=before):
                self.assertFalse(self.meant(handler, before))

    def test_one_that_takes_anything_does_not_name_it(self):
        for handler in ("except Exception:", "except:", "except RuntimeError as error:"):
            found = asked("try:\n    refuse()\n%s\n    pass\n" % handler)
            self.assertEqual((found.by_program, found.names_it), (True, False), handler)

    def test_a_librarys_handler_is_not_the_programs(self):
        found = asked("def run(call):\n    try:\n        call()\n    except BaseException:\n        pass\nrun(refuse)\n", library=True)
        self.assertEqual((found.by_program, found.names_it), (False, False))

    def test_what_does_not_take_it_or_passes_it_on_is_no_handler(self):
        self.assertIsNone(asked("try:\n    refuse()\nexcept KeyError:\n    pass\n"))
        self.assertIsNone(asked("try:\n    refuse()\nfinally:\n    x = 1\n"))
        self.assertIsNone(asked("try:\n    refuse()\nexcept Exception:\n    x = 1\n    raise\n"))
        self.assertIsNone(asked("try:\n    x = 1\nexcept Exception:\n    pass\nrefuse()\n"))

    def test_a_function_that_is_made_within_a_try_does_not_run_there(self):
        self.assertIsNone(asked("try:\n    def late():\n        refuse()\nexcept Exception:\n    pass\nlate()\n"))
        found = asked("@(lambda f: f)\ndef early():\n    try:\n        refuse()\n    except Exception:\n        pass\nearly()\n")
        self.assertIsNotNone(found, "a decorator is the first line of its function")


if __name__ == "__main__":
    unittest.main()

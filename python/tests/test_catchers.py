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

"""Files that are run with another text: scripts, modules, and what asks for their source."""

import os
import sys
import unittest

import support

SCRIPT = 'import inspect\nimport mod\nfrom pkg import sub\ndef f():\n    return "old"\nprint(f(), mod.X, sub.Y, "old" in inspect.getsource(f))\n'


class Edited(support.RunCase):
    def ran(self, follow, *words):
        """What the program prints, and whether its files are as they were."""
        os.makedirs(os.path.join(self.user, "pkg"))
        files = {"main.py": SCRIPT, "mod.py": 'X = "old"\n', "pkg/sub.py": 'Y = "old"\n', "pkg/__init__.py": ""}
        for name, text in files.items():
            with open(os.path.join(self.user, name), "w") as file:
                file.write(text)
        edited = {
            os.path.join(self.user, name): text.replace('"old"\n', '"new"\n') for name, text in files.items() if text
        }
        self.configure(follow=follow, allow_writes=True, edited=edited)
        out = self.passes("", command=[sys.executable, *words])
        return out.split(), all(self.read(name) == text for name, text in files.items())

    def read(self, name):
        with open(os.path.join(self.user, name)) as file:
            return file.read()

    def test_a_script_and_its_modules_run_with_their_other_text(self):
        self.assertEqual(self.ran(True, "main.py"), (["new", "new", "new", "False"], True))

    def test_so_they_do_where_loops_are_not_followed(self):
        self.assertEqual(self.ran(False, "main.py"), (["new", "new", "new", "False"], True))

    def test_so_does_a_module_that_is_run(self):
        self.assertEqual(self.ran(True, "-m", "main"), (["new", "new", "new", "False"], True))


if __name__ == "__main__":
    unittest.main()

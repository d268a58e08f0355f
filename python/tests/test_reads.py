"""The files of its own that a program reads: what the answer of a sweep depends on."""

import json
import os
import unittest

import support


class Reads(support.RunCase):
    config = {"reads": True}

    def reads(self, program, **options):
        """Run a program that writes the record itself, since none of PyTorch is there to do so; give what was noted."""
        text = program + "\nfrom oomph import record\nrecord.current().write()\n"
        done = self.python(text, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = os.path.join(self.run_folder, "hook")
        (name,) = [name for name in os.listdir(folder) if name.endswith(".json")]
        with open(os.path.join(folder, name)) as file:
            found = json.load(file)["reads"]
        return None if found is None else [os.path.relpath(path, self.user) for path in found]

    def test_what_is_read_and_imported_is_listed(self):
        with open(os.path.join(self.user, "own.py"), "w") as file:
            file.write("value = 1\n")
        program = (
            "import json, sys\nsys.path.insert(0, '')\nimport own\n"
            "open('data.txt').close()\nopen(b'out/log.txt', 'rb').close()\n"
            "open('new.txt', 'w').close()\nopen('data.txt').close()\nopen('/etc/hostname').close()\n"
        )
        self.assertEqual(self.reads(program), ["data.txt", os.path.join("out", "log.txt"), "own.py"])

    def test_nothing_is_noted_unasked(self):
        self.configure(reads=False)
        self.assertIsNone(self.reads("open('data.txt').close()\n"))

    def test_libraries_in_the_folder_are_not_the_programs(self):
        library = os.path.join(self.user, "lib", "site-packages")
        os.makedirs(library)
        with open(os.path.join(library, "other.py"), "w") as file:
            file.write("value = 1\n")
        self.assertEqual(self.reads("import sys\nsys.path.insert(0, 'lib/site-packages')\nimport other\n"), [])


if __name__ == "__main__":
    unittest.main()

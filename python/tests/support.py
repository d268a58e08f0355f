"""Shared by the tests: a run folder, and programs run under the hook in a process of their own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PYTHON)

import strict  # noqa: E402


class RunCase(unittest.TestCase):
    """A test with a run folder and a folder of the user's that holds a few files.

    The user's folder lies in the temporary folder, which is allowed to be written to, but was there before the run:
    the tests therefore also show that such a folder is protected.
    """

    config = {}

    def setUp(self):
        base = os.path.realpath(tempfile.mkdtemp(prefix="oomph-test-"))
        self.addCleanup(shutil.rmtree, base, True)
        self.run_folder = os.path.join(base, "run")
        self.user = os.path.join(base, "user")
        os.makedirs(self.run_folder, mode=0o700)
        os.makedirs(os.path.join(self.user, "out", "checkpoint-1"))
        for name, text in (("data.txt", "data\n"), ("out/log.txt", "old\n"), ("out/checkpoint-1/model.bin", "dear")):
            with open(os.path.join(self.user, name), "w") as file:
                file.write(text)
        self.configure()

    def configure(self, **more):
        """Write hook.json: what every run has, what this case wants, and more."""
        config = {"schema": "oomph.hook-config/1", "stop": {"mode": "exit", "steps": 3}, "program_root": self.user, **self.config, **more}
        with open(os.path.join(self.run_folder, "hook.json"), "w") as file:
            json.dump(config, file)

    def snapshot(self):
        """Everything in the user's folder, to be compared after a run."""
        found = {}
        for folder, names, files in os.walk(self.user):
            for name in names:
                found[os.path.relpath(os.path.join(folder, name), self.user)] = None
            for name in files:
                with open(os.path.join(folder, name), "rb") as file:
                    found[os.path.relpath(os.path.join(folder, name), self.user)] = file.read()
        return found

    def python(self, program, *arguments, **options):
        """Run a program text in the user's folder under the hook; give the finished process."""
        environment = dict(os.environ, OOMPH_RUN=self.run_folder, OOMPH_HOOK_DEBUG="1")
        environment["PYTHONPATH"] = os.pathsep.join([PYTHON] + options.pop("path", []))
        environment.update(options.pop("env", {}))
        command = [sys.executable] + options.pop("flags", []) + ["-c", textwrap.dedent(program)] + list(arguments)
        command = options.pop("command", command)
        return subprocess.run(
            command, env=environment, cwd=options.pop("cwd", self.user), capture_output=True, text=True, timeout=300,
        )

    def passes(self, program, *arguments, **options):
        """Run a program that must end well and print nothing on stderr; give its output."""
        done = self.python(program, *arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def records(self):
        """The records that the run left, by the order of their file names; each must be what its schema says."""
        folder = os.path.join(self.run_folder, "hook")
        if not os.path.isdir(folder):
            return []
        result = []
        for name in sorted(os.listdir(folder)):
            if name.endswith(".json"):
                with open(os.path.join(folder, name)) as file:
                    result.append(json.load(file))
                problems = strict.problems(result[-1])
                self.assertFalse(problems, "%s is not what crates/oomph-protocol declares: %s" % (name, problems))
        return result

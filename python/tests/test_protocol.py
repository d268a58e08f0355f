"""What the hook writes is what crates/oomph-protocol declares, and it refuses what another version of oomph wants."""

import json
import os
import re

import strict
import support

WHOLE = {
    "schema": "oomph.names/1", "pid": 1, "devices": {}, "names": [], "modules": [],
    "phases": [{"device": 0, "at": 1, "phase": "load", "step": 1, "begin": True}],
    "complete": {"names": True, "modules": True},
}


class Strict(support.RunCase):
    def test_every_kind_of_drift_is_found(self):
        self.assertEqual(strict.problems(WHOLE), [])
        for change, says in (
            (lambda it: it.update(history_entries=1), "unknown field `history_entries`"),
            (lambda it: it["phases"][0].pop("step"), "missing field `phases[0].step`"),
            (lambda it: it["phases"][0].update(phase="loading"), "`phases[0].phase` is 'loading'"),
            (lambda it: it.update(pid=True), "`pid` is True"),
            (lambda it: it.update(pid=-1), "`pid` is -1"),
            (lambda it: it.update(schema="oomph.names/9"), "nothing declares"),
        ):
            document = json.loads(json.dumps(WHOLE))
            change(document)
            found = strict.problems(document)
            self.assertTrue(found and found[0].startswith(says), found)


class Versions(support.RunCase):
    def test_a_config_of_another_version_is_refused_before_the_program_runs(self):
        for schema in ("oomph.hook-config/2", None):
            self.configure(schema=schema)
            done = self.python("open('made', 'w'); print('ran')")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("two versions of oomph are mixed", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertFalse(os.path.exists(os.path.join(self.user, "made")))

    def test_a_guarded_program_of_another_version_runs_without_oomph(self):
        self.configure(schema="oomph.hook-config/2", guard={"quiet": True})
        done = self.python("print('ran')")
        self.assertEqual((done.returncode, done.stdout), (0, "ran\n"))
        self.assertIn("the program runs without oomph", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(self.records(), [])


class Names(support.RunCase):
    def test_a_name_that_is_not_utf_8_costs_no_document(self):
        from oomph.documents import as_json

        written = as_json({"file": os.fsdecode(b"/home/a\xff/train.py")})
        self.assertEqual(json.loads(written.decode("utf-8")), {"file": "/home/a?/train.py"})


class Literals(support.RunCase):
    def test_paths_and_schemas_are_named_in_one_place(self):
        """A name of the protocol in quotes in another module would be a second declaration."""
        from oomph import _protocol

        names = {
            value for name, value in vars(_protocol).items()
            if name.startswith(("PATH_", "SCHEMA_")) and len(value) > 7 and "." not in value[:1]
        }
        package = os.path.dirname(os.path.abspath(_protocol.__file__))
        for folder, _, files in os.walk(package):
            for name in files:
                if name.endswith(".py") and name != "_protocol.py":
                    with open(os.path.join(folder, name)) as file:
                        texts = set(re.findall(r"\"([^\"\n]+)\"", re.sub(r'"""[\s\S]*?"""', "", file.read())))
                    self.assertFalse(texts & names, name)


class Config(support.RunCase):
    def test_the_config_is_parsed_and_never_run(self):
        mark = os.path.join(self.user, "run")
        with open(os.path.join(self.run_folder, "hook.json"), "w") as file:
            file.write("__import__('os').mkdir(%r)" % mark)
        self.assertEqual(self.passes("print(1)"), "1\n")
        self.assertFalse(os.path.exists(mark))

    def test_the_hook_knows_each_wish_of_the_launcher_and_no_other(self):
        """As with `history_entries`, which was read here and documented while no launcher could send it."""
        from oomph import hook

        with open(os.path.join(os.path.dirname(support.PYTHON), "schemas", "oomph.hook-config-1.json")) as file:
            self.assertEqual(set(hook._DEFAULTS), set(json.load(file)["properties"]))

    def test_a_watch_writes_what_a_launcher_would(self):
        """`oomph.watch()` makes a run folder of its own, which `oomph watch` reads."""
        done = self.python(
            """
            import json, os, oomph
            os.environ.pop("OOMPH_RUN", None)
            watch = oomph.watch(quiet=True).start()
            print(open(os.path.join(watch.folder, "hook.json")).read())
            watch.stop()
            """,
            env={"OOMPH_RUN": ""},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(strict.problems(json.loads(done.stdout)), [])

"""Files that are run with another text: scripts, modules, and what asks for their source."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = 'import inspect\nimport mod\nfrom pkg import sub\ndef f():\n    return "old"\nprint(f(), mod.X, sub.Y, "old" in inspect.getsource(f))\n'


def run(tmp_path, follow, *words):
    program = tmp_path / "program"
    (program / "pkg").mkdir(parents=True)
    files = {"main.py": SCRIPT, "mod.py": 'X = "old"\n', "pkg/sub.py": 'Y = "old"\n', "pkg/__init__.py": ""}
    for name, text in files.items():
        (program / name).write_text(text)
    folder = tmp_path / "run"
    folder.mkdir()
    edited = {str(program / name): text.replace('"old"\n', '"new"\n') for name, text in files.items() if text}
    settings = {"follow": follow, "allow_writes": True, "program_root": str(program), "edited": edited}
    (folder / "hook.json").write_text(json.dumps(settings))
    environment = dict(os.environ, OOMPH_RUN=str(folder), PYTHONPATH=os.path.dirname(HERE))
    done = subprocess.run([sys.executable, *words], cwd=program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), {name: (program / name).read_text() for name in files} == files


def test_a_script_and_its_modules_run_with_their_other_text(tmp_path):
    assert run(tmp_path, True, "main.py") == (["new", "new", "new", "False"], True)


def test_so_they_do_where_loops_are_not_followed(tmp_path):
    assert run(tmp_path, False, "main.py") == (["new", "new", "new", "False"], True)


def test_so_does_a_module_that_is_run(tmp_path):
    assert run(tmp_path, True, "-m", "main") == (["new", "new", "new", "False"], True)

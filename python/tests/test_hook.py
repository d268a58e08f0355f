"""Start-up: chaining to another sitecustomize, hooks on imports, and being harmless where there is nothing to do."""

import os
import sys
import textwrap
import unittest

import support

from oomph import _protocol as protocol


class Start(support.RunCase):
    def write(self, name, text):
        path = os.path.join(self.user, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))
        return path

    def test_chains_to_another_sitecustomize(self):
        self.write("site/sitecustomize.py", "import sys; sys.theirs = __file__; value = 5")
        out = self.passes(
            "import sys, sitecustomize, oomph.hook; print(sitecustomize.value, sys.theirs == sitecustomize.__file__, oomph.hook._installed)",
            path=[os.path.join(self.user, "site")],
        )
        self.assertEqual(out, "5 True True\n")

    def test_their_exception_is_reported_as_ever(self):
        self.write("site/sitecustomize.py", "raise ValueError('theirs')")
        done = self.python("import oomph.hook; print(oomph.hook._installed)", path=[os.path.join(self.user, "site")])
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"))
        self.assertIn("ValueError: theirs", done.stderr)

    def test_nothing_without_a_run_or_with_a_broken_one(self):
        for run in ("", "/nonexistent/oomph"):
            out = self.passes("import os, sys; print('oomph.overlay' in sys.modules, os.stat.__class__.__name__)", env={"OOMPH_RUN": run})
            self.assertEqual(out, "False builtin_function_or_method\n")
        self.write("../run/hook.json", "{ not json")
        self.assertEqual(self.passes("print(1)"), "1\n")

    def test_costs_no_imports(self):
        out = self.passes("import sys; print([m for m in ('torch', 'numpy', 'ctypes', 'logging', 'asyncio') if m in sys.modules])")
        self.assertEqual(out, "[]\n")

    def test_isolated_python(self):
        self.assertEqual(self.passes("print(1)", flags=["-I"]), "1\n")
        self.assertEqual(self.passes("print(1)", flags=["-S"]), "1\n")

    def test_module_run_and_multiprocessing(self):
        self.write("prog.py", """
            import multiprocessing as mp, os
            def work(path):
                with open(path, "w") as f: f.write("w")
            if __name__ == "__main__":
                for method in ("fork", "spawn"):
                    p = mp.get_context(method).Process(target=work, args=(method,)); p.start(); p.join()
                    print(p.exitcode, open(method).read())
        """)
        done = self.python("", command=[sys.executable, "-m", "prog"])
        self.assertEqual((done.stdout, done.stderr), ("0 w\n0 w\n", ""))
        self.assertFalse(os.path.exists(os.path.join(self.user, "spawn")))


class Threads(support.RunCase):
    def test_they_sleep_while_they_wait_unless_the_user_has_decided(self):
        asked = """
            import ctypes, os, oomph.hook
            for settle in oomph.hook._before.get("torch", ()):
                settle()
            get = ctypes.CDLL(None).getenv
            get.restype = ctypes.c_char_p
            print(get(b"OMP_WAIT_POLICY"), os.environ.get("OMP_WAIT_POLICY"))
        """
        self.assertEqual(self.passes(asked), "None None\n", "the card is real, and the program's speed counts")
        with open(os.path.join(self.run_folder, protocol.PATH_LEDGER), "w"):
            pass
        self.assertEqual(self.passes(asked), "b'PASSIVE' None\n")
        self.assertEqual(self.passes(asked, env={"OMP_WAIT_POLICY": "ACTIVE"}), "b'ACTIVE' ACTIVE\n")
        self.assertEqual(self.passes(asked, env={"GOMP_SPINCOUNT": "9"}), "None None\n")


class Forking(support.RunCase):
    def test_a_child_may_be_the_first_to_use_cuda(self):
        if self.python("import torch").returncode:
            self.skipTest("torch is not installed")
        out = self.passes(
            """
            import os, torch
            if not os.fork():
                print(torch._C._cuda_isInBadFork(), flush=True)
                os._exit(0)
            os.wait()
            """
        )
        self.assertEqual(out, "False\n")


class Notebook(support.RunCase):
    config = {"stop": {"mode": "steps", "steps": 3}}

    def test_the_rest_of_a_notebook_is_passed_over(self):
        done = self.python("import torch, ipykernel, nbclient, nbformat")
        if done.returncode:
            self.skipTest("torch, ipykernel or nbclient is not installed")
        out = self.python(
            """
            import nbclient, nbformat
            cells = [
                "import torch; w = torch.ones(2, requires_grad=True); o = torch.optim.SGD([w], 0.1)",
                "for i in range(9):\\n    w.sum().backward(); o.step(); print(i)",
                "print('never'); 1 / 0",
            ]
            book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
            nbclient.NotebookClient(book).execute()
            print([[part.get("text") for part in cell.outputs] for cell in book.cells])
            """
        )
        self.assertEqual((out.returncode, out.stdout), (0, "[[], ['0\\n1\\n'], []]\n"), out.stderr)
        kernels = [record for record in self.records() if record["optimizer_steps"]]
        self.assertEqual([(one["optimizer_steps"], one["stopped"]) for one in kernels], [(3, "steps")])


class OnImport(support.RunCase):
    def setUp(self):
        super().setUp()
        for name, text in (
            ("pack/__init__.py", "value = 1"), ("pack/inner.py", "import sys; loader = __loader__; value = 2; seen = __spec__.loader"),
            ("lazy.py", "import sys, types; m = types.ModuleType('lazy'); m.value = 9; sys.modules['lazy'] = m"),
        ):
            path = os.path.join(self.user, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)

    def test_runs_once_after_execution(self):
        out = self.passes(
            """
            import sys
            from oomph import hook
            hook.on_import("pack.inner", lambda m: (print("after", m.value), setattr(m, "value", 3)))
            hook.before_import("pack.inner", lambda: print("before"))
            hook.on_import("lazy", lambda m: print("lazy", m.value))
            from pack.inner import value
            print(value, type(sys.modules["pack.inner"].__loader__).__name__, "exec_module" in vars(sys.modules["pack.inner"].__loader__))
            import lazy, importlib
            importlib.reload(sys.modules["pack.inner"])
            hook.on_import("pack", lambda m: print("already", m.value))
            """
        )
        self.assertEqual(out, "before\nafter 2\n3 SourceFileLoader False\nlazy 9\nalready 1\n")

    def test_a_broken_callback_and_a_broken_module(self):
        out = self.passes(
            """
            from oomph import hook
            hook.on_import("pack", lambda m: 1 / 0)
            import pack; print(pack.value)
            hook.on_import("nowhere", print)
            try: import nowhere
            except ImportError as e: print(e)
            """,
            env={"OOMPH_HOOK_DEBUG": ""},
        )
        self.assertEqual(out, "1\nNo module named 'nowhere'\n")

    def test_the_finder_goes_when_nobody_waits(self):
        out = self.passes(
            """
            import sys
            from oomph import hook
            print(any(type(f).__module__ == "oomph.hook" for f in sys.meta_path))
            hook._after.clear(); hook._before.clear()
            hook.on_import("pack", lambda m: None)
            import pack
            print(any(type(f).__module__ == "oomph.hook" for f in sys.meta_path))
            """
        )
        self.assertEqual(out, "True\nFalse\n")


class Trackers(support.RunCase):
    def test_environment_only_when_imported(self):
        with open(os.path.join(self.user, "wandb.py"), "w") as file:
            file.write("import os\nmode = os.environ.get('WANDB_MODE')\ndef init(*a, **k): return k\ndef login(): raise EOFError\n")
        out = self.passes(
            """
            import os
            print(os.environ.get("WANDB_MODE"), os.environ.get("NEPTUNE_MODE"))
            import wandb
            print(wandb.mode, wandb.init(project="p", mode="online"), wandb.login(), os.environ.get("NEPTUNE_MODE"))
            """
        )
        self.assertEqual(out, "None None\ndisabled {'project': 'p', 'mode': 'disabled'} True None\n")

    def test_hub(self):
        done = self.python("import huggingface_hub")
        if done.returncode:
            self.skipTest("huggingface_hub is not installed")
        out = self.passes(
            """
            import huggingface_hub as h
            url = h.create_repo("me/model", private=True)
            print(url.repo_id, h.HfApi().create_repo("x", repo_type="dataset"))
            print(h.upload_folder(repo_id="me/model", folder_path=".", commit_message="m", run_as_future=True).result().oid[:4])
            print(h.HfApi().upload_file(path_or_fileobj="a", path_in_repo="a", repo_id="me/model").commit_url[-8:], h.constants.HF_HUB_DISABLE_TELEMETRY)
            """,
            env={"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "https://hub.invalid"},
        )
        self.assertEqual(out.split("\n")[0].split()[0], "me/model")
        self.assertIn("datasets/dry-run/x", out)
        self.assertIn("0000\n00000000 True", out)


if __name__ == "__main__":
    unittest.main()

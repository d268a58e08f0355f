"""`%%dry_run`: which cells are run, and a notebook that uses it, where there is a kernel, PyTorch and a built oomph."""

import importlib.util
import os
import unittest

import support

from oomph import magic

OOMPH = os.environ.get("OOMPH_BIN") or os.path.join(os.path.dirname(support.PYTHON), "target", "release", "oomph")
COMPLETE = all(importlib.util.find_spec(name) for name in ("nbclient", "ipykernel", "torch")) and os.path.exists(OOMPH)


def cells(*sources):
    return [cell["source"] for cell in magic.earlier_cells(["", *sources], {3})]


class EarlierCells(unittest.TestCase):
    def test_what_prepares_the_kernel_failed_or_was_a_dry_run_is_left_out(self):
        found = cells("%load_ext oomph\n!pip install x\nimport torch", "%%dry_run --gpu t4\nx = 1", "raise ValueError", "%pip install y")
        self.assertEqual(found, ["import torch"])

    def test_a_cell_that_looks_at_an_answer_is_left_out(self):
        # In the process of the dry run there is no answer yet.
        self.assertEqual(cells("a = 1", "print(dry_run_report['verdict'])"), ["a = 1"])

    def test_needed_cells_are_followed_through_names_and_changes(self):
        before = ["import torch", "a = torch.zeros(1)", "b = 2", "a.add_(b)", "print('unrelated')", "def f(x):\n    return x + b"]
        self.assertEqual(magic.needed_by("a.sum()", before), [0, 1, 2, 3])
        # A method may change what it is given, so `b` brings `a` with it.
        self.assertEqual(magic.needed_by("f(1)", before), [0, 1, 2, 3, 5])
        self.assertEqual(magic.needed_by("b", before[:3]), [2])
        self.assertEqual(magic.needed_by("1 + 1", before), [])

    def test_what_cannot_be_read_is_needed(self):
        self.assertEqual(magic.needed_by("1", ["%magic x", "c = 1", "from os import *"]), [0, 2])
        self.assertEqual(magic.needed_by("%%bash\nx", ["c = 1"]), [0])


@unittest.skipUnless(COMPLETE, "there is no nbclient, no ipykernel, no torch or no target/release/oomph")
class Notebook(unittest.TestCase):
    def test_a_cell_runs_on_a_virtual_card_and_the_kernel_takes_no_gpu(self):
        import nbclient
        import nbformat

        sources = [
            "%load_ext oomph",
            "import torch\nweights = torch.zeros(1024, 1024)",
            "raise ValueError('a cell that failed')",
            "%%dry_run --gpu rtx-3060 --no-probe\nheld = weights.cuda()\nbig = torch.zeros(16 << 30, dtype=torch.uint8, device='cuda')",
            "print('held' in globals(), torch.cuda.is_initialized(), dry_run_report['verdict'])",
            "%%dry_run --needed --gpu rtx-4090 --no-probe\nx = torch.zeros(1, device='cuda')\nprint(torch.cuda.get_device_name())",
            "print(dry_run_report['verdict'])",
        ]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        environment = dict(os.environ, OOMPH_BIN=OOMPH, PYTHONPATH=support.PYTHON)
        client = nbclient.NotebookClient(notebook, timeout=300, allow_errors=True)
        client.execute(env=environment)

        def text(place):
            outputs = notebook.cells[place].outputs
            return "".join(output.get("text", "") + "".join(output.get("traceback", [])) for output in outputs)

        died = text(3)
        self.assertIn("does not fit", died)
        self.assertIn("cell [4], line 2", died)
        self.assertEqual(text(4).strip(), "False False oom")
        self.assertIn("NVIDIA GeForce RTX 4090", text(5))
        self.assertEqual(text(6).strip(), "fits")


if __name__ == "__main__":
    unittest.main()

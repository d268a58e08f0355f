"""`python -m oomph.cells FILE`: runs the cells of a notebook one after another, as a kernel would, without a kernel.

FILE holds a JSON list of cells, each with its `number`, as in `In [5]`, and its `source`.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Run the cells; the first that fails ends the program as a failure."""
    with open(sys.argv[1], encoding="utf-8") as file:
        cells = json.load(file)
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    # A kernel finds modules in its folder, and has no arguments.
    sys.path.insert(0, "")
    sys.argv = [""]
    os.environ.setdefault("MPLBACKEND", "Agg")
    # What a dry run runs is not part of what the user typed.
    shell = InteractiveShell.instance(colors="NoColor", config=Config({"HistoryManager": {"enabled": False}}))
    for cell in cells:
        shell.execution_count = cell["number"]
        result = shell.run_cell(cell["source"], store_history=True)
        if not result.success:
            sys.stdout.flush()
            sys.exit(1)


if __name__ == "__main__":
    main()

"""`python -m oomph`: the program `oomph` that was installed with this package, with this Python for `python`."""

from __future__ import annotations

import os
import sys

from oomph import installed


def main() -> None:
    """Run the program with the arguments of this process."""
    program = installed.program()
    if program is None:
        sys.exit("error: the program oomph was not installed with this package\ntry: pip install --force-reinstall oomph")
    # As activating an environment does: `python` in the command is the Python that was asked.
    here = os.path.dirname(sys.executable)
    if here:
        os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH") or os.defpath])
        if sys.prefix != sys.base_prefix:
            os.environ["VIRTUAL_ENV"] = sys.prefix
    arguments = [program, *sys.argv[1:]]
    if os.name == "nt":
        import subprocess

        sys.exit(subprocess.call(arguments))
    os.execv(program, arguments)


if __name__ == "__main__":
    main()

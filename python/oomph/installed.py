"""Finds the program `oomph`."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig

NAME = "oomph.exe" if os.name == "nt" else "oomph"


def program() -> str | None:
    """The program that was installed with this package; None where none was."""
    user = sysconfig.get_preferred_scheme("user") if hasattr(sysconfig, "get_preferred_scheme") else os.name + "_user"
    # `pip install --target FOLDER` puts programs next to the packages.
    beside_packages = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    beside_python = os.path.dirname(sys.executable)
    folders = (beside_python, sysconfig.get_path("scripts"), beside_packages, sysconfig.get_path("scripts", user))
    for path in (os.path.join(folder, NAME) for folder in folders if folder):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def find() -> str | None:
    """The program `oomph`: the one that was named, the one of this Python, or one on PATH; None where there is none."""
    named = os.environ.get("OOMPH_BIN")
    if named and os.access(named, os.X_OK):
        return named
    return program() or shutil.which(NAME)

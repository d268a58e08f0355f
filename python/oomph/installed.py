"""Where the program `oomph` is that was installed with this package."""

import os
import sys
import sysconfig

NAME = "oomph.exe" if os.name == "nt" else "oomph"


def program():
    """The path of the program where an installer of packages put it; None where none did."""
    user = sysconfig.get_preferred_scheme("user") if hasattr(sysconfig, "get_preferred_scheme") else os.name + "_user"
    # `pip install --target FOLDER` puts programs next to the packages.
    beside_packages = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    beside_python = os.path.dirname(sys.executable)
    folders = (beside_python, sysconfig.get_path("scripts"), beside_packages, sysconfig.get_path("scripts", user))
    for path in (os.path.join(folder, NAME) for folder in folders if folder):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None

"""Starts a program on the virtual card of this run as if oomph had not started it: without_hook.py PROGRAM ARGUMENTS...

The child has the card and none of the hook: it imports oomph from a folder that holds nothing else.
"""

import os
import subprocess
import sys
import tempfile

import oomph

with tempfile.TemporaryDirectory() as folder:
    os.symlink(os.path.dirname(oomph.__file__), os.path.join(folder, "oomph"))
    environment = dict(os.environ, PYTHONPATH=folder)
    sys.exit(subprocess.call([sys.executable] + sys.argv[1:], env=environment))

"""Keeps the bytecode of libraries that were installed without, so that not every run compiles them.

`uv` compiles nothing when it installs, and images often forbid Python to write bytecode: TensorFlow's imports then take three
times as long. What a dry run's Python would write next to the library goes with the run's private view; it is kept in oomph's
cache instead. Bytecode that lies next to a library is used as always.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import SourceFileLoader, cache_from_source

_INSTALLED = ("/site-packages/", "/dist-packages/")


def install(folder: str) -> None:
    """Keep in `folder` what Python finds nowhere else."""
    plain = SourceFileLoader.get_code

    def get_code(self, fullname):
        if sys.pycache_prefix is not None or not _lacks_bytecode(getattr(self, "path", None)):
            return plain(self, fullname)
        # Python looks in the folder, compares the times and sizes as always, and writes there what is not found.
        forbidden = sys.dont_write_bytecode
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
        try:
            return plain(self, fullname)
        finally:
            sys.pycache_prefix, sys.dont_write_bytecode = None, forbidden

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _lacks_bytecode(path):
    """Whether this is a library's source without bytecode next to it."""
    if not path or not any(part in path for part in _INSTALLED):
        return False
    try:
        os.stat(cache_from_source(path))
    except (OSError, NotImplementedError):
        return True
    return False

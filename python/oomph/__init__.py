"""The part of oomph that runs inside the user's Python.

In a program of a run, `oomph.hook.install()` is its only entry; in a notebook it is `%load_ext oomph`. A program that
imports it has `oomph.watch()`, `oomph.report()`, `oomph.scalars()`, `oomph.TrainerCallback` and `oomph.LightningCallback`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_LIBRARY = ("watch", "report", "scalars")
_CALLBACKS = {"TrainerCallback": "trainer_callback", "LightningCallback": "lightning_callback"}


def __getattr__(name):
    """What a program may use, loaded when it does: most processes of a run use none of it."""
    if name in _LIBRARY:
        from oomph import library

        value = getattr(library, name)
    elif name in _CALLBACKS:
        from oomph import callbacks

        value = getattr(callbacks, _CALLBACKS[name])()
    else:
        raise AttributeError("module 'oomph' has no attribute %r" % name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook `%%dry_run`: IPython calls this for `%load_ext oomph`."""
    from oomph import magic

    magic.register(shell)

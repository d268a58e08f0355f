"""The part of oomph that runs inside the user's Python.

In a program of a run, `oomph.hook.install()` is its only entry; in a notebook it is `%load_ext oomph`.
"""

__version__ = "0.1.0"


def load_ipython_extension(shell):
    """Give a notebook `%%dry_run`: IPython calls this for `%load_ext oomph`."""
    from oomph import magic

    magic.register(shell)

"""The part of oomph that runs inside the user's Python. `oomph.hook.install()` is its only entry."""

__version__ = "0.1.0"

"""Start-up door of the oomph hook.

The launcher puts this folder on PYTHONPATH, so that every Python of the run imports this module before the program's
first line. It must leave no trace: a `sitecustomize` that the machine already had is executed first, exactly as if
this one were not there, and everything of ours is guarded.
"""


def _chain():
    """Execute the next `sitecustomize` along sys.path in our place; its exceptions are its own and propagate."""
    import os
    import sys

    # The frozen parts of importlib are always loaded; its public modules would cost several milliseconds.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    here = os.path.realpath(os.path.dirname(os.path.abspath(__file__)))
    others = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) != here]
    # Another copy of this file, as where the package is installed: each would execute the other.
    others = [entry for entry in others if not os.path.isfile(os.path.join(entry, "oomph", "hook.py"))]
    spec = PathFinder.find_spec(__name__, others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    # The import system hands out what it finds in sys.modules after this file has run, so `import sitecustomize`
    # in the program gives the machine's own module.
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


def _install():
    """Start the hook in a process of a run; never raise."""
    try:
        import os

        if os.environ.get("OOMPH_RUN"):
            from oomph import hook

            hook.install()
    except Exception:
        pass


try:
    _chain()
finally:
    _install()

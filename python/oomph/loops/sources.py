"""Instruments the loops of the user's source where it is compiled: scripts, modules, cells of notebooks.

The interpreter compiles a script itself, before any code of ours is asked. It says so in an audit event, in which the
script is run instead; the process then ends with the status with which the script ended.
"""

from __future__ import annotations

import builtins
import sys
from _frozen_importlib_external import SourceFileLoader

from oomph import edited, hook, mainscript, sites
from oomph.loops import rewrite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

_TRAINERS = (
    "/transformers/trainer.py", "/ultralytics/engine/trainer.py", "/ultralytics/engine/validator.py",
    "/keras/src/backend/torch/trainer.py", "/fastai/learner.py", "/mmengine/runner/loops.py",
)  # fmt: skip
"""Files of libraries whose loops go over batches and epochs in the program's stead."""
_RECIPES = "/site-packages/recipes/"
"""Scripts that are installed like libraries and are programs all the same: torchtune's."""


def is_followed(path: str) -> bool:
    """Whether loops of this file are the program's."""
    return path.endswith(_TRAINERS) or _RECIPES in path or sites.is_user_file(path)


def instrumented(source: str | bytes, path: str) -> CodeType | None:
    """Code of a file with its loops instrumented; None where the file is compiled as usual."""
    try:
        return rewrite.instrument(source, path) if is_followed(path) else None
    except Exception:
        # A file that cannot be rewritten is compiled unchanged.
        return None


def install(
    loop: Callable[..., Any], goes_on: Callable[..., bool], over: Callable[[int], None], now: Callable[..., Any]
) -> None:
    """Have the loops of the user's code call these functions."""
    for name, function in ((rewrite.LOOP, loop), (rewrite.GOES_ON, goes_on), (rewrite.OVER, over), (rewrite.NOW, now)):
        setattr(builtins, name, function)
    _instrument_modules()
    mainscript.compiled = _compile_script  # type: ignore[assignment]
    _run_scripts()
    hook.on_import("IPython.core.interactiveshell", _instrument_cells)


def _compile_script(text, path, mode, dont_inherit=True):
    code = instrumented(text, path)
    return code if code is not None else compile(text, path, mode, dont_inherit=dont_inherit)


def _instrument_modules():
    plain = SourceFileLoader.get_code

    def get_code(self, fullname):
        try:
            path = self.get_filename(fullname)
            code = instrumented(self.get_data(path), path) if path.endswith(".py") and is_followed(path) else None
        except Exception:
            # A loader that fails here fails in the import itself as well, which shows the error.
            code = None
        return code if code is not None else plain(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _run_scripts():
    """Run the script that the interpreter is about to run, once."""
    waiting = [True]

    def run_script(event, arguments):
        if event == "cpython.run_file" and waiting:
            waiting.clear()
            _run_main(str(arguments[0]))

    # Without it the interpreter would neither trace nor profile what runs inside the event.
    run_script.__cantrace__ = True  # type: ignore[attr-defined]
    sys.addaudithook(run_script)


def _run_main(path):
    import os

    if not is_followed(path) or not os.path.isfile(path):
        return
    text = edited.text_of(path)
    is_edited = text is not None
    try:
        if text is None:
            with open(path, "rb") as file:
                text = file.read()
    except OSError:
        return
    if instrumented(text, path) is None and not is_edited:
        return
    mainscript.execute(text, path, mainscript.become(path))
    raise SystemExit(0)


def _instrument_cells(module):
    """A cell of a notebook is parsed by IPython, which hands the tree to one method before it compiles it."""
    original = module.InteractiveShell.transform_ast

    def transform_ast(self, node):
        node = original(self, node)
        try:
            rewrite.rewrite(node)
        except Exception:
            # A cell that cannot be rewritten runs as it was typed.
            pass
        return node

    module.InteractiveShell.transform_ast = transform_ast

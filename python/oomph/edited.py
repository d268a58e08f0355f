"""Runs files of the program with another text, to try a change to the user's code without touching its files.

`edited` of hook.json maps absolute paths to texts. Scripts, modules, what is run by `runpy`, tracebacks and
`inspect.getsource` all see the text; everything else about the file, its name and its place, is unchanged.
"""

from __future__ import annotations

import os
import sys

_texts: dict[str, bytes] = {}
"""Real path -> the text, as bytes."""


def text_of(path: str) -> bytes | None:
    """The text that replaces a file's, as bytes; None where the file runs unchanged."""
    return _texts.get(os.path.realpath(path)) if _texts else None


def install(wanted: dict[str, str], follows: bool) -> None:
    """Take in the files that are run with another text; `follows`: scripts are run by `loops.sources`."""
    _take_in(wanted)
    if not _texts:
        return
    _replace()
    if not follows:
        _run_scripts()


def begin_again(wanted: dict[str, str]) -> None:
    """The same in a child of the fork server, which runs the script itself."""
    _texts.clear()
    _take_in(wanted)
    if _texts:
        _replace()


def _take_in(wanted):
    for path, text in (wanted or {}).items():
        _texts[os.path.realpath(path)] = text.encode()


def _replace():
    import io
    import linecache
    from _frozen_importlib_external import SourceFileLoader

    from oomph import mainscript

    for path, text in _texts.items():
        # Without a time of change the entry stays, whatever the file says.
        linecache.cache[path] = (len(text), None, text.decode().splitlines(True), path)
    if getattr(SourceFileLoader, "_oomph_edited", False):
        return
    SourceFileLoader._oomph_edited = True  # type: ignore[attr-defined]
    plain_data, plain_code, plain_open = SourceFileLoader.get_data, SourceFileLoader.get_code, io.open_code

    def get_data(self, path):
        text = text_of(path)
        return plain_data(self, path) if text is None else text

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        text = text_of(path)
        # The compiled file next to the source is of the other text.
        return plain_code(self, fullname) if text is None else mainscript.compiled(text, path, "exec", dont_inherit=True)

    def open_code(path):
        text = text_of(path)
        return plain_open(path) if text is None else io.BytesIO(text)

    SourceFileLoader.get_data, SourceFileLoader.get_code, io.open_code = get_data, get_code, open_code  # type: ignore[method-assign]
    if any(path.endswith(_READ) for path in _texts):
        _read_others()


_READ = (".ipynb", ".yaml", ".yml", ".json", ".toml")
"""Notebooks, which what runs them reads as a file like any other, and configuration files."""


def _read_others():
    """Give those who open such a file its other text."""
    import builtins
    import io

    plain = builtins.open

    def open(file, mode="r", *args, **kwargs):
        text = None
        if isinstance(file, (str, bytes, os.PathLike)) and mode in ("r", "rt", "rb"):
            path = os.fsdecode(file)
            text = text_of(path) if path.endswith(_READ) else None
        if text is None:
            return plain(file, mode, *args, **kwargs)
        read = io.BytesIO(text)
        read.name = path
        return read if mode == "rb" else io.TextIOWrapper(read, encoding="utf-8")

    builtins.open = io.open = open


def _run_scripts():
    """Run the script that the interpreter is about to run, where its text is another."""
    from oomph import mainscript

    waiting = [True]

    def run_script(event, arguments):
        if event == "cpython.run_file" and waiting:
            waiting.clear()
            path = str(arguments[0])
            text = text_of(path)
            if text is not None:
                mainscript.execute(text, path, mainscript.become(path))
                raise SystemExit(0)

    run_script.__cantrace__ = True  # type: ignore[attr-defined]
    sys.addaudithook(run_script)

"""Reads from a program's text what it will import, and imports it ahead of the program.

Only what lies in the standard library or in site-packages is imported. A module of the program's own is not executed:
its text is read for the imports that it makes. Functions and conditions are not looked into, so what is found is what
every run of the program imports before it does anything else.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oomph.server.environment import Watch

_LATER = {"ray", "mpi4py", "vllm", "horovod", "torch_xla"}
"""They start threads or other processes as they are imported, which a fork would lose: each child imports its own."""

_MOST_FILES = 200
"""More files of a program are not read."""


def preload(script: str | None, module: str | None, packages: Sequence[str], watch: Watch) -> None:
    """Import what a script or a module of the program imports first, and then these packages."""
    folder = _folder(script)
    sys.path[:1] = [folder] if sys.path[:1] == [""] and not getattr(sys.flags, "safe_path", False) else sys.path[:1]
    reader = _Reader(folder, watch)
    path = script or reader.own_file(module)
    if path:
        try:
            reader.read(path, (module or "").rpartition(".")[0])
        except _Stop:
            pass
    for package in packages:
        _import(package)


def late(program: dict[str, Any]) -> list[str]:
    """The packages that a program like this (a record's `program`) imports while it runs.

    The first optimizer of torch imports torch's compiler, which takes about as long as torch itself.
    """
    return ["torch._dynamo"] if program.get("optimizers") else []


def _folder(script):
    return os.path.dirname(os.path.realpath(script)) if script else os.getcwd()


def _import(name):
    """Import a module, if it is nobody's own; say whether it is there."""
    if name.partition(".")[0] in _LATER:
        return False
    if name not in sys.modules:
        try:
            importlib.import_module(name)
        except BaseException as error:
            # It fails in the program just so, and there it may be caught. Ctrl-C alone is meant for us.
            if isinstance(error, KeyboardInterrupt):
                raise
    return name in sys.modules


class _Stop(Exception):
    """From here on the text does not say what an import finds."""


class _Reader:
    def __init__(self, folder, watch):
        self.folder = folder
        self.watch = watch
        self.seen: set[str] = set()

    def own_file(self, name):
        """The file of a module of the program's own."""
        if not name:
            return None
        path = os.path.join(self.folder, *name.split("."))
        candidates = (path + ".py", os.path.join(path, "__init__.py"))
        return next((candidate for candidate in candidates if os.path.isfile(candidate)), None)

    def read(self, path, package):
        """Follow the imports of one file of the program."""
        if path in self.seen or len(self.seen) >= _MOST_FILES:
            return
        self.seen.add(path)
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            raise _Stop from None
        self._statements(tree.body, package)

    def _statements(self, body, package):
        for statement in body:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    self._name(alias.name, ())
            elif isinstance(statement, ast.ImportFrom):
                self._from(statement, package)
            elif isinstance(statement, ast.Try):
                self._statements(statement.body, package)
            elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._other(statement)

    def _from(self, statement, package):
        name = statement.module or ""
        if statement.level:
            parts = package.split(".") if package else []
            kept = parts[: len(parts) - statement.level + 1]
            name = ".".join(kept + ([name] if name else []))
        if name and name != "__future__":
            self._name(name, [alias.name for alias in statement.names])

    def _name(self, name, wanted):
        own = self.own_file(name.partition(".")[0])
        if own is None and not os.path.isdir(os.path.join(self.folder, name.partition(".")[0])):
            if not _import(name):
                return
            for attribute in wanted:
                # Packages that import their parts when they are first asked for do so here.
                try:
                    getattr(sys.modules[name], attribute)
                except AttributeError:
                    if attribute != "*":
                        _import("%s.%s" % (name, attribute))
                except Exception:
                    # A package may run any code for an attribute; the program's own import shows the error.
                    pass
            return
        for inner in [name] + ["%s.%s" % (name, attribute) for attribute in wanted]:
            file = self.own_file(inner)
            if file is not None:
                is_package = os.path.basename(file) == "__init__.py"
                self.read(file, inner if is_package else inner.rpartition(".")[0])

    def _other(self, statement):
        setting = _setting(statement)
        if setting is not None:
            self.watch.set_early(*setting)
            return
        for node in ast.walk(statement):
            if _dotted(node) == "sys.path" and not _appends(statement):
                raise _Stop


def _dotted(node):
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return "%s.%s" % (node.value.id, node.attr)
    return None


def _appends(statement):
    call = getattr(statement, "value", None)
    return isinstance(call, ast.Call) and getattr(call.func, "attr", None) == "append"


def _text(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _setting(statement):
    """The variable, its value, and whether an older value stands, for `os.environ[...] = ...` and `setdefault`."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Subscript) and _dotted(target.value) == "os.environ":
            # Python 3.8 wraps what is in the brackets.
            name, value = _text(getattr(target.slice, "value", None) if type(target.slice).__name__ == "Index" else
                                target.slice), _text(statement.value)
            return (name, value, False) if name is not None and value is not None else None
    call = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "setdefault":
        if _dotted(call.func.value) == "os.environ" and len(call.args) == 2:
            name, value = _text(call.args[0]), _text(call.args[1])
            return (name, value, True) if name is not None and value is not None else None
    return None

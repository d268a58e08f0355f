"""Entry of the hook: reads the launcher's settings, and attaches to modules as they are imported.

Nothing here imports torch or any other library. Work is hung on module names with `on_import` and happens when the
program itself imports them, so a process that never uses torch pays for one small JSON file and nothing else.
"""

from __future__ import annotations

import os
import sys

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from oomph._protocol import HookConfig

_DEFAULTS: HookConfig = {
    "schema": protocol.SCHEMA_HOOK_CONFIG,
    "stop": {"mode": "peak-stable", "steps": 3},
    "follow": True,
    "values": "off",
    "allow_writes": False,
    "network": "read",
    "random_weights": False,
    "program_root": None,  # type: ignore[typeddict-item] # The launcher names one, in whichever way it starts a program.
    "history": False,
    "history_entries": None,
    "names": True,
    "remedies": [],
    "edited": {},
    "ranks": None,
    "routing": "balanced",
    "unknown_sizes": "most",
    "pools": "as-needed",
    "batches": "longest",
    "guard": None,
    "reads": False,
    "bytecode": None,
    "compare": None,
}

config: HookConfig = _DEFAULTS.copy()
"""The contents of hook.json over the defaults."""

_after: dict[str, list[Callable[[Any], object]]] = {}
_before: dict[str, list[Callable[[], object]]] = {}
_finder: _Finder | None = None
_installed = False
_moments: Any = None
_new_run: list[Callable[[], object]] = []
serves = False
"""Whether this process is a fork server."""


def guarded(callback: Callable[..., Any], *args: Any) -> Any:
    """Call and swallow: a fault of the hook must never become a fault of the program."""
    try:
        return callback(*args)
    except Exception as error:
        # The callback may be any part of oomph, and the program goes on without it.
        _note_fault(error, False)
        return None


def needed(callback: Callable[..., Any], *args: Any) -> Any:
    """The same for what the answer hangs on: where it fails the program goes on, and the run has no answer."""
    try:
        return callback(*args)
    except Exception as error:
        # As above; the fault is in the report.
        _note_fault(error, True)
        return None


def _note_fault(error, voids):
    if os.environ.get("OOMPH_HOOK_DEBUG"):
        import traceback

        traceback.print_exc()
    try:
        from oomph import faults

        (faults.voids if voids else faults.swallowed)(error)
    except Exception:
        # What notes a fault may be what fails; the program goes on all the same.
        pass


class _Finder:
    """A meta path finder that answers only for modules somebody waits for, and steps aside for all others.

    The wrapped thing is the loader *instance* that the ordinary finders made for this one import, so the module sees
    its true loader, with all its resources, before and after.
    """

    def __init__(self):
        self._busy = set()

    def find_spec(self, name, path=None, target=None):
        if name not in _after and name not in _before:
            return None
        if name in self._busy:
            return None
        self._busy.add(name)
        try:
            for callback in _before.pop(name, ()):
                guarded(callback)
            spec = None
            for finder in list(sys.meta_path):
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
            if spec is not None and name in _after:
                guarded(_watch_loader, spec)
            return spec
        finally:
            self._busy.discard(name)
            self._retire()

    def invalidate_caches(self):
        """Nothing is cached here; the import system may ask all the same."""

    def _retire(self):
        if not _after and not _before:
            try:
                sys.meta_path.remove(self)
            except ValueError:
                pass


def _watch_loader(spec):
    """Make the loader of `spec` run the waiting callbacks once the module's own execution is complete."""
    loader = spec.loader
    if loader is None or not hasattr(loader, "exec_module"):
        return
    original = loader.exec_module
    name = spec.name

    def exec_module(module):
        try:
            del loader.exec_module
        except AttributeError:
            pass
        original(module)
        _run_after(name, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        # A loader without a __dict__ (built-in, frozen): none of the modules hooked today has one.
        pass


def _run_after(name, module):
    callbacks = _after.pop(name, ())
    # Packages such as transformers replace themselves in sys.modules while they execute.
    module = sys.modules.get(name, module)
    for callback in callbacks:
        guarded(callback, module)
    if _finder is not None:
        _finder._retire()


def on_import(name: str, callback: Callable[[Any], object]) -> None:
    """Call `callback(module)` once, after the module called `name` has been executed.

    A module that is already there is handed over at once. Callbacks run in the order of registration, before the
    importing statement gets the module, so `from name import thing` sees what they changed.
    """
    module = sys.modules.get(name)
    if module is not None and not _initializing(module):
        guarded(callback, module)
        return
    _after.setdefault(name, []).append(callback)
    _attach()


def before_import(name: str, callback: Callable[[], object]) -> None:
    """Call `callback()` once, right before the module called `name` is looked for; at once if it is there already."""
    if name in sys.modules:
        guarded(callback)
        return
    _before.setdefault(name, []).append(callback)
    _attach()


def _initializing(module):
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _attach():
    global _finder
    if _finder is None:
        _finder = _Finder()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def run_folder() -> str | None:
    """The run folder of this process, or None outside a run."""
    return os.environ.get(protocol.PATH_RUN_VARIABLE) or None


def is_ours(folder: str) -> bool:
    """Whether a run folder is this user's and nobody else's.

    A process may outlive its run, whose folder is removed then; others can make a folder of the same name again.
    """
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    is_folder = found.st_mode & 0o170000 == 0o040000
    return is_folder and not found.st_mode & 0o077 and found.st_uid == os.geteuid()


def on_virtual_card() -> bool:
    """Whether the cards of this run are virtual: their books are in the run folder."""
    folder = run_folder()
    return folder is not None and os.path.exists(os.path.join(folder, protocol.PATH_LEDGER))


class _Scanning:
    """What the scanner of the json module is given."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def _parse(text):
    """Read JSON. The json module takes longer to import than all the rest of the start; its scanner, which is written
    in C, is a module of its own."""
    try:
        from _json import make_scanner

        # The scanner reads attributes only, so that a class does for the decoder that it wants.
        return make_scanner(_Scanning)(text, 0)[0]  # type: ignore[arg-type]
    except (ImportError, TypeError, AttributeError):
        import json

        return json.loads(text)


def _refuse(folder, given):
    """Say that the launcher is of another version, by whose words this process would be followed, kept from writing or
    changed in other ways than the launcher wants.

    A dry run ends here, where nothing of the program has run yet. A guarded run is the user's own: it goes on without oomph.
    """
    is_guarded = bool(given.get("guard"))
    os.write(2, (
        "oomph: %s is %r, and this hook reads %r: two versions of oomph are mixed; "
        "remove other installations of oomph from PYTHONPATH%s\n"
        % (
            os.path.join(folder, protocol.PATH_HOOK_CONFIG), given.get("schema"), protocol.SCHEMA_HOOK_CONFIG,
            "; the program runs without oomph" if is_guarded else "",
        )
    ).encode("utf-8", "replace"))
    if not is_guarded:
        os._exit(2)


def _read_config(folder):
    """What the launcher wants of this process, or None where it must be left alone."""
    result: dict[str, Any] = {**_DEFAULTS}
    try:
        with open(os.path.join(folder, protocol.PATH_HOOK_CONFIG), "rb") as file:
            given = _parse(file.read().decode("utf-8"))
        if given.get("schema") != protocol.SCHEMA_HOOK_CONFIG:
            _refuse(folder, given)
            return None
        for key, value in given.items():
            if key == "stop" and isinstance(value, dict):
                result["stop"] = {**_DEFAULTS["stop"], **value}
            else:
                result[key] = value
    except Exception:
        # A file that is missing or broken leaves the defaults. It never stops the program.
        pass
    # The name of the user's folder is not UTF-8. The launcher starts programs there.
    if result["program_root"] and "\ufffd" in result["program_root"]:
        result["program_root"] = os.getcwd()
    return result


def install() -> None:
    """Attach the hook to this process according to $OOMPH_RUN/hook.json. Safe to call twice; never raises."""
    global config, _installed
    folder = run_folder()
    if _installed or not folder or not is_ours(folder):
        return
    _installed = True
    wanted = _read_config(folder)
    if wanted is None:
        return
    config = wanted
    if config["bytecode"] is not None and is_ours(config["bytecode"]):
        guarded(_install_bytecode, config["bytecode"])
    if config["reads"]:
        guarded(_install_reads)
    if config["edited"]:
        guarded(_install_edited)
    # Before the overlay: ranks tell each other things in files of their own.
    guarded(_install_ranks)
    if not config["allow_writes"]:
        guarded(_install_harmless, folder)
    if config["network"] != "all":
        guarded(_install_network)
    if config["follow"]:
        guarded(_prepare_loops)
    if on_virtual_card():
        before_import("torch", _settle_threads)
    on_import("torch", _torch_imported)
    if config["values"] not in ("off", "all-host"):
        on_import("numpy", _install_joined)
    guarded(_install_frameworks)
    before_import("vllm", _settle_vllm)
    on_import("vllm", _vllm_imported)
    if config["random_weights"]:
        guarded(_install_weights)


def _settle_threads():
    """Have OpenMP's threads sleep while they wait for each other, unless the user has decided.

    They would turn on their processors, which are shared with other programs: copying 200 KiB in two threads took 8 ms on a busy
    machine, and all of that as time of the processor, by which it is decided how far loops are followed.
    """
    if not any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")):
        # Not in `os.environ`, which is the program's to look at: the library reads it from the process when it is loaded.
        os.putenv("OMP_WAIT_POLICY", "PASSIVE")


def _install_bytecode(folder):
    from oomph import bytecode

    bytecode.install(folder)


def _install_reads():
    from oomph import reads

    reads.install(config["program_root"])


def _install_edited():
    from oomph import edited

    edited.install(config["edited"], config["follow"])


def _prepare_loops():
    from oomph.loops import attach

    attach.prepare()


def _install_frameworks():
    from oomph import frameworks

    frameworks.install(config)


def in_new_run(callback: Callable[[], object]) -> None:
    """Call `callback()` when this process, a child of the fork server, begins a run of its own."""
    _new_run.append(callback)


def in_each_run(callback: Callable[[], object]) -> None:
    """Call `callback()` now, or, in a fork server, which runs nothing itself, in each child as its run begins."""
    if serves:
        in_new_run(callback)
    else:
        callback()


def begin_again() -> None:
    """In a child of the fork server: replace what this process was given by what the child's own run folder says.

    Libraries may have been imported, with the hook on them; nothing of the program has run and no card was used.
    """
    from oomph import record

    global serves
    serves = False
    folder = os.environ[protocol.PATH_RUN_VARIABLE]
    # In place, because others hold it.
    config.clear()  # type: ignore[attr-defined] # To a type checker it always has all keys.
    config.update(_read_config(folder) or _DEFAULTS)
    record.current().folder = folder
    if config["reads"]:
        guarded(_install_reads)
    if config["edited"]:
        guarded(_begin_edited)
    for callback in _new_run:
        guarded(callback)
    torch = sys.modules.get("torch")
    if torch is not None and config["remedies"]:
        guarded(_install_remedies, record.current())


def _begin_edited():
    from oomph import edited

    edited.begin_again(config["edited"])


def _install_ranks():
    from oomph import ranks

    ranks.install(config["ranks"])


def _private_view(folder):
    """Say how far the kernel keeps this run's writes away: "whole", "partly" or not at all (None).

    The record of the view is a list of names and values, each ended by a zero byte (`crates/oomph-private`).
    """
    try:
        with open(os.path.join(folder, protocol.PATH_VIEW), "rb") as file:
            record = file.read().split(b"\0")
    except OSError:
        return None
    return "whole" if b"whole" in record[::2] else "partly"


def _install_harmless(folder):
    from oomph import trackers

    trackers.install()
    view = _private_view(folder)
    if view != "whole":
        from oomph import overlay

        overlay.install(folder, config.get("program_root"))
        in_new_run(lambda: overlay.move(run_folder() or folder, config.get("program_root")))
    else:
        guarded(_install_renames)
    # What opens files without Python waits for its library; none of it is loaded before.
    before_import("torch", _install_savers)
    for name in _EARLY_LIBRARIES:
        before_import(name, _install_savers)


def _install_network():
    from oomph import network

    network.install()


def _install_renames():
    from oomph import renames

    renames.install()


_EARLY_LIBRARIES = ("safetensors", "tokenizers", "sqlite3", "h5py", "cv2", "soundfile", "pyarrow")
_savers_installed = False


def _install_savers():
    global _savers_installed
    if not _savers_installed:
        _savers_installed = True
        from oomph import savers

        savers.install_libraries()


def _install_weights():
    from oomph import record, weights

    weights.install(record.current())


def _torch_imported(torch):
    from oomph import record, watcher

    rec = record.current()
    if on_virtual_card():
        guarded(_install_crashes)
    # Before what else wraps the same functions of torch.
    seen = needed(watcher.install, torch, rec, config)
    if not config["allow_writes"]:
        from oomph import savers

        guarded(savers.install_torch, torch)
    if config["compare"] is not None:
        needed(_install_comparing, torch, config["compare"])
    if config["values"] != "off":
        needed(_install_values, torch, rec)
    guarded(_install_guard, torch, rec)
    if config["follow"]:
        if config["values"] != "all-host":
            guarded(_install_undrawn, torch)
        needed(_install_batches, torch, rec)
    # A run that counts is observed from as far as it can be; remedies need to know the program.
    if config["follow"] or config["remedies"]:
        guarded(_install_program, torch, rec)
        if seen is not None and _moments is not None:
            guarded(_moments.on_optimizer, seen.made)
    if config["remedies"]:
        guarded(_install_remedies, rec)


def _install_comparing(torch, wanted):
    from oomph import comparing

    comparing.install(torch, wanted)


def _install_crashes():
    from oomph import crashes

    crashes.install()


def _install_guard(torch, rec):
    from oomph import guard

    guard.install(torch, rec, config)
    folder = run_folder()
    if config["guard"] is not None and folder is not None:
        guarded(_open_door, folder)


def _open_door(folder):
    from oomph import door

    door.install(folder)


def _settle_vllm():
    from oomph import vllm

    vllm.settle()


def _vllm_imported(module):
    from oomph import record, vllm

    vllm.imported(record.current())


def _install_values(torch, rec):
    from oomph import values
    from oomph.values import decoders

    session = values.install(torch, config["values"], rec, config["routing"], config["unknown_sizes"])
    if session is not None:
        on_import("transformers.generation.utils", lambda module: decoders.watch(module, session.warn))


def _install_undrawn(torch):
    from oomph import undrawn

    undrawn.install(torch)


def _install_joined(numpy):
    from oomph import joined

    joined.install(numpy)


def _install_program(torch, rec):
    global _moments
    from oomph import program
    from oomph.moments import Moments

    _moments = Moments(torch, rec)
    program.install(torch, rec, _moments)


def _install_batches(torch, rec):
    from oomph import batches

    batches.install(torch, rec, config)


def _install_remedies(rec):
    from oomph import remedies

    remedies.install(_moments, rec, config)

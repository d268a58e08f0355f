"""Decides which places a dry run may write to: temporary files and caches, but nothing the user would miss."""

from __future__ import annotations

import os
import stat
import sys

from oomph import _protocol as protocol

_TEMPORARY_CACHES = ("torchinductor_", "triton", "torch_extensions", "matplotlib", "numba", "pymp-", ".X11", ".ICE", ".font")
"""Names in a temporary folder that are caches, which programs share between runs."""

_CACHE_VARIABLES = (
    "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "HF_DATASETS_CACHE",
    "HF_MODULES_CACHE", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_HOME", "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX", "UV_CACHE_DIR",
    "PIP_CACHE_DIR", "KERAS_HOME", "NLTK_DATA", "XDG_RUNTIME_DIR", "JAX_COMPILATION_CACHE_DIR", "VLLM_CACHE_ROOT",
)


def _forms(path):
    """A path as given and with its links resolved, without a trailing slash."""
    path = os.path.abspath(os.path.expanduser(path))
    return {path, os.path.realpath(path)}


class Places:
    """Decides by its key whether a path may be changed for real."""

    def __init__(self, run_folder: str, program_root: str | None, private: str) -> None:
        temporary = set()
        for variable in ("TMPDIR", "TEMP", "TMP"):
            if os.environ.get(variable):
                temporary |= _forms(os.environ[variable])
        temporary |= _forms("/tmp") | _forms("/var/tmp") | {"/dev/shm"}
        temporary.discard("/")
        if os.path.isfile(os.path.join(run_folder, protocol.PATH_FENCE)):
            # The kernel refuses to write anywhere else. Temporary files have a folder of the run's own.
            temporary = {"/dev/shm"}
        fenced = temporary == {"/dev/shm"}
        self._packages = not fenced
        allowed = {"/dev", "/proc", "/sys"} | _forms(run_folder) | temporary
        if fenced:
            allowed |= _forms("~/.cache/huggingface") | _forms("~/.cache/torch")
        else:
            allowed |= _forms("~/.cache") | _forms("~/.triton") | _forms("~/.nv") | _forms("~/.config/matplotlib")
        for variable in _CACHE_VARIABLES:
            for value in filter(None, os.environ.get(variable, "").split(os.pathsep)):
                allowed |= _forms(value)
        if getattr(sys, "pycache_prefix", None):
            allowed |= _forms(sys.pycache_prefix)
        allowed.discard("/")
        self._allowed = tuple(sorted(path + "/" for path in allowed))
        self._temporary = tuple(sorted(path + "/" for path in temporary))
        # A program that lives in a temporary folder has its own files there, and they are as dear as anywhere.
        self._protected = tuple(
            path + "/" for path in (_forms(program_root) if program_root else ()) if (path + "/").startswith(self._allowed)
            and path + "/" not in self._allowed
        )
        self._older = self._names_before_the_run(private)
        never = ("/proc", "/sys", "/dev", "/usr", "/lib", "/etc", os.path.realpath(run_folder))
        self._never = tuple(path + "/" for path in never)

    def _names_before_the_run(self, private):
        """What lay in the temporary folders when the run began. It is somebody's, so it is not changed either.

        The first process of the run looks; the others read what it found.
        """
        path = os.path.join(private, "temporary")
        try:
            with open(path, "rb") as file:
                return set(map(os.fsdecode, file.read().split(b"\0")))
        except OSError:
            pass
        names: set[str] = set()
        for folder in self._temporary:
            if folder == "/dev/shm/":
                continue
            try:
                names.update(folder + name for name in os.listdir(folder) if not name.startswith(_TEMPORARY_CACHES))
            except OSError:
                pass
        try:
            part = "%s.%d" % (path, os.getpid())
            with open(part, "wb") as file:
                file.write(b"\0".join(os.fsencode(name) for name in names))
            os.rename(part, path)
        except OSError:
            pass
        return names

    def allowed(self, key: str) -> bool:
        """Say whether `key` may be written to for real."""
        slashed = key + "/"
        if not slashed.startswith(self._allowed):
            return self._is_of_packages(slashed)
        best = max(len(root) for root in self._allowed if slashed.startswith(root))
        for root in self._protected:
            if slashed.startswith(root) and len(root) > best:
                return self._is_of_packages(slashed)
        for root in self._temporary:
            if len(root) == best and slashed.startswith(root):
                return root + key[best:].split("/", 1)[0] not in self._older or self._is_of_packages(slashed)
        return True

    def _is_of_packages(self, slashed):
        """Whether a path lies among installed packages or compiled modules; a fence keeps those as they are."""
        parts = ("/__pycache__/", "/site-packages/", "/dist-packages/")
        return self._packages and any(part in slashed for part in parts)

    def never_redirected(self, path: object) -> bool:
        """A cheap first look at a path that is to be read: certainly nothing of the overlay."""
        if type(path) is not str:
            return False
        return path.startswith(self._never) or (self._packages and "/site-packages/" in path)


def is_special(info: os.stat_result) -> bool:
    """Say whether an entry is a pipe, a socket or a device: writing to it is talking, not storing."""
    mode = info.st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))

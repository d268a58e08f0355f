"""Has every thread of the program take part in the kernels, whichever of them uses CUDA first.

A thread takes part by a word that only it can set. Those that start after the kernels were made set it at their start; the
main thread is asked to by the interpreter; all others that are there already, like those of a pool, at their next call of
CUDA, by the virtual GPU.
"""

from __future__ import annotations

import ctypes
import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from oomph._types import Torch

    class Session(Protocol):
        """What lets the calling thread take part, if there are kernels."""

        def enter(self) -> None: ...


_ADMIT = "_ZN3c104impl29tls_set_dispatch_key_includedENS_11DispatchKeyEb"
"""`c10::impl::tls_set_dispatch_key_included(DispatchKey, bool)` of libc10."""


class Threads:
    """The threads of one process."""

    def __init__(self, torch: Torch, session: Session) -> None:
        self._torch = torch
        self._session = session
        self._starting: set[int] = set()
        """Threads that have begun, by the system's numbers: the interpreter does not list them at once."""
        self._callback: Any = None
        self._followed = False

    def forked(self) -> None:
        """Begin again in a forked child."""
        self._starting = set()

    def follow(self) -> None:
        """From now on have each thread enter when it begins."""
        original = getattr(threading.Thread, "_bootstrap_inner", None)
        if original is None or self._followed:
            return
        self._followed = True
        threads = self

        def _bootstrap_inner(thread):
            number = threading.get_native_id()
            # First noted, then entered: kernels that are made in between find the thread.
            threads._starting.add(number)
            try:
                threads._session.enter()
                return original(thread)
            finally:
                threads._starting.discard(number)

        threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]

    def admit(self, key: Any) -> None:
        """The kernels are there, and this thread has entered: have the others enter."""
        own = threading.current_thread()
        main = threading.main_thread()
        if own is not main:
            self._enter_main_thread()
        others = set(self._starting)
        for thread in threading.enumerate():
            # A dummy may be a thread of autograd's engine, which takes part as the thread does that waits for it.
            if thread.native_id is not None and not isinstance(thread, threading._DummyThread):
                others.add(thread.native_id)
        for thread in (own, main):
            if thread.native_id is not None:
                others.discard(thread.native_id)
        others.discard(threading.get_native_id())
        if others:
            self._enter_at_next_call(int(key), sorted(others))

    def _enter_at_next_call(self, key, others):
        try:
            wait = ctypes.CDLL(None).oomph_admit
            library = os.path.join(os.path.dirname(self._torch.__file__), "lib", "libc10.so")
            function = ctypes.cast(getattr(ctypes.CDLL(library), _ADMIT), ctypes.c_void_p)
        except (AttributeError, OSError):
            # No virtual GPU is there, or a PyTorch that names it otherwise: these threads go on without values.
            return
        wait.argtypes = (ctypes.c_void_p, ctypes.c_uint16, ctypes.POINTER(ctypes.c_int), ctypes.c_size_t)
        wait.restype = None
        wait(function, key, (ctypes.c_int * len(others))(*others), len(others))

    def _enter_main_thread(self):
        """CUDA was initialised elsewhere: have the interpreter call `enter` in the main thread when it can."""
        session = self._session

        def pending(_):
            try:
                session.enter()
            except Exception:
                # The interpreter calls this between two instructions of the program, where nothing may be raised.
                pass
            return 0

        self._callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
        ctypes.pythonapi.Py_AddPendingCall(self._callback, None)

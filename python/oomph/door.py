"""The door of a guarded run: a Unix socket that takes a script from `oomph attach`, without any permission to trace.

It lies in the run folder with mode 0600, and the kernel says who is at the other end: only this user and root are let
in. One thread waits at it; the script runs in the main thread, or in this one where the main thread does not get to it.
"""

from __future__ import annotations

import os
import stat
import struct
import threading

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BEGIN_TIMEOUT = 0.5
"""Seconds in which the main thread may begin with a script."""

_kept: list[Any] = []
"""Callbacks that the interpreter may still call."""


def install(folder: str) -> None:
    """Open the door of this process. Its children, which are other processes, have none."""
    import socket

    place = os.path.join(folder, protocol.PATH_DOOR)
    os.makedirs(place, mode=0o700, exist_ok=True)
    path = os.path.join(place, "%d%s" % (os.getpid(), protocol.PATH_DOOR_END))
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(path)
        os.chmod(path, 0o600)
        door.listen(4)
    except OSError:
        door.close()
        return
    os.register_at_fork(after_in_child=door.close)
    threading.Thread(target=_serve, args=(door, socket), name="oomph-door", daemon=True).start()


def _serve(door, socket):
    while True:
        try:
            guest, _ = door.accept()
        except OSError:
            return
        try:
            with guest:
                script = _admit(guest, socket)
            if script is not None:
                _schedule(script)
        except Exception:
            # A guest that goes away or hands in a broken script must not close the door for the next one.
            pass


def _admit(guest, socket):
    """Read the path of a script from a guest who may hand one in."""
    _, user, _ = struct.unpack("3i", guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if user not in (0, os.geteuid()):
        guest.sendall(b"another user\n")
        return None
    guest.settimeout(5)
    line = b""
    while not line.endswith(b"\n") and len(line) < 4096:
        part = guest.recv(4096)
        if not part:
            return None
        line += part
    path = line.decode("utf-8").rstrip("\n")
    found = os.lstat(path)
    if not os.path.isabs(path) or not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        guest.sendall(b"no script of this user\n")
        return None
    with open(path, encoding="utf-8") as file:
        script = compile(file.read(), path, "exec")
    guest.sendall(b"ok\n")
    return script


def _schedule(script):
    """Have the main thread run a script between two instructions. A script takes its order once, whoever runs it."""
    begun = threading.Event()

    def call(_):
        begun.set()
        try:
            exec(script, {})
        except Exception:
            # A script leaves its answer in its folder; a fault of it must not reach the program's main thread.
            pass
        return 0

    try:
        import ctypes

        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        add = ctypes.pythonapi.Py_AddPendingCall
        add.argtypes, add.restype = [kind, ctypes.c_void_p], ctypes.c_int
        callback = kind(call)
        _kept.append(callback)
        del _kept[:-64]
        add(callback, None)
    except Exception:
        # An interpreter without ctypes: then in this thread.
        pass
    if not begun.wait(_BEGIN_TIMEOUT):
        call(None)

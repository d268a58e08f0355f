"""The fork server: pays a program's imports once and forks a child per run.

The launcher starts this in the program's own Python, on the virtual GPU and with the hook, in place of the program
(`python OPTIONS -c "from oomph.server import main; main()"`). Requests and answers are lines of JSON over the socket
that is standard input; `crates/oomph-launch/src/server` is the other end.

    {"do":"import","script":PATH|null,"module":NAME|null,"packages":[...]}   -> {"ready":{"problem":null|"why not"}}
    {"do":"run","number":1,"argv":[...],"script":PATH|null,"module":NAME|null,"environment":{NAME:VALUE|null},
     "output":"inherit|stderr|discard","tail":PATH|null,
     "view":PATH|null,"base":PATH|null}                                     -> {"started":1,"pid":7}, {"ended":1,"status":0}

`status` is that of `wait`. `view` is the plan of the child's private view of the file system (`crates/oomph-private`), and
`base` is where the real one lies in the server's own.

What is imported comes from site-packages and the standard library only; the program's own modules are executed in each
child. The server touches no card: what opens one while it is imported makes the server useless, and it says so.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys

# The overlay replaces the public name.
from io import open as _open

from oomph import _protocol as protocol
from oomph import hook, record, values
from oomph.server import cards, child, environment, imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_exit = os._exit


def main() -> None:
    """Serve until the launcher is gone. A child leaves as its program ends."""
    hook.serves = True
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    server = _Server(channel)
    request = server.serve()
    # Only a child gets here, with nothing of the server on its stack.
    child.run(request)


class _Server:
    def __init__(self, channel):
        self.channel = channel
        self.received = b""
        self.watch = environment.Watch()
        self.cards = cards.Cards()
        self.running: dict[int, dict[str, Any]] = {}
        """Process id -> the request."""
        self.learned = False
        """Whether a run has shown what it imports later than the program's text says."""
        self.woken, self.waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(self.waker, False)

    def serve(self):
        """Answer requests. In a forked child: give the request that it is to carry out."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self.channel, self.woken], [], [])
            if self.woken in ready:
                self._drain()
                self._reap()
            if self.channel in ready:
                for line in self._lines():
                    request = json.loads(line)
                    if request["do"] == "import":
                        self.say({"ready": {"problem": self._import(request)}})
                    elif self._fork(request):
                        return request

    def _lines(self):
        """The whole lines that have come; several threads of the launcher may have sent some at once."""
        try:
            received = self.channel.recv(1 << 16)
        except ConnectionError:
            received = b""
        if not received:
            self._leave()
        *lines, self.received = (self.received + received).split(b"\n")
        return lines

    def say(self, message):
        """Send one line to the launcher; if it is gone, so is our reason to be."""
        try:
            self.channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._leave()

    def _import(self, request):
        """Import what the program will import; tell what makes forking unsafe, if anything does."""
        import threading

        self.cards.hide()
        self.watch.begin()
        quiet = _Quiet()
        try:
            imports.preload(request.get("script"), request.get("module"), request.get("packages") or (), self.watch)
            values.prepare()
        finally:
            quiet.end()
            self.watch.end()
        if threading.active_count() > 1:
            names = ", ".join(thread.name for thread in threading.enumerate()[1:])
            return "an import started a thread, which a forked child would lack: %s" % names
        torch = sys.modules.get("torch")
        if torch is not None and getattr(torch.cuda, "_initialized", False):
            return "an import initialised CUDA"
        return None

    def _fork(self, request):
        """Fork a child for a request; true in the child."""
        sys.stdout.flush()
        sys.stderr.flush()
        program = record.current().program
        # A collector that looked at what is shared would copy all of it, in each child.
        gc.freeze()
        pid = os.fork()
        if pid:
            self.running[pid] = request
            self.say({"started": request["number"], "pid": pid})
            return False
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # A session of its own, so that everything of this run is found when it has to be ended.
        os.setsid()
        self.channel.close()
        os.close(self.woken)
        os.close(self.waker)
        if request.get("view"):
            _enter(request["view"])
        _keep_cuda()
        self.cards.show()
        self.watch.become(request["environment"])
        child.connect(request["output"], request.get("tail"))
        record.current().program = program
        hook.begin_again()
        return True

    def _drain(self):
        try:
            while os.read(self.woken, 512):
                pass
        except BlockingIOError:
            pass

    def _reap(self):
        while self.running:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            request = self.running.pop(pid, None)
            if request is not None:
                if not self.learned:
                    self.learned = True
                    folder = (request.get("base") or "") + request["environment"][protocol.PATH_RUN_VARIABLE]
                    self._learn(os.path.join(folder, protocol.PATH_HOOK, "%d%s" % (pid, protocol.PATH_REPORT_END)))
                self.say({"ended": request["number"], "status": status})

    def _learn(self, path):
        """Import what the run that left this record imported late, so that the others need not."""
        try:
            with _open(path, encoding="utf-8") as file:
                program = json.load(file).get("program") or {}
        except (OSError, ValueError):
            return
        packages = imports.late(program)
        if packages:
            problem = self._import({"packages": packages})
            if problem is not None:
                # What cannot be undone makes every further child useless.
                self._leave()

    def _leave(self):
        for pid in self.running:
            try:
                os.killpg(pid, signal.SIGKILL)
            except OSError:
                pass
        _exit(0)


def _enter(plan):
    """In a child: move into a private view of the file system, or have a process started that can."""
    import ctypes

    if ctypes.CDLL(None).oomph_enter_private_view(os.fsencode(plan)):
        environment.refuse("run", "a private view", os.path.dirname(plan))


def _keep_cuda():
    """In a child: have the virtual GPU answer. A driver answers no process that was forked after CUDA was used, and imports may
    have counted the cards; this child stands for a process that imported them itself."""
    import ctypes

    afresh = getattr(ctypes.CDLL(None), "oomph_forked_afresh", None)
    if afresh is not None:
        afresh()


class _Quiet:
    """What imports print would be printed once for many runs; the program's own run is where it belongs."""

    def __init__(self):
        sys.stdout.flush()
        sys.stderr.flush()
        self._kept = [os.dup(1), os.dup(2)]
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.close(nothing)

    def end(self):
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(self._kept, 1):
            os.dup2(kept, number)
            os.close(kept)

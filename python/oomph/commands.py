"""Brings the file commands that a program starts (`rm -r old-checkpoint`, `cp`, `mv`, ...) under the overlay.

A child that is not Python does not go through Python's file functions: it would change the real files, and it would
not find what the run has written.  So the shell and the children of a program get a folder in front of their PATH that
holds commands of these names.  Each of them starts this module, which does the same work through the overlay.  Where
every path may really be changed, the machine's own command runs.

What copies to other machines is not run at all when it would send something away.  Covered are `os.system`, `os.popen`
and `subprocess`; `os.exec*`, `os.posix_spawn` and a command that is named by its full path are not.
"""

from __future__ import annotations

import os
import shlex
import sys

from oomph import _protocol as protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from oomph.overlay import Overlay

FILES = ("rm", "rmdir", "mv", "cp", "mkdir", "ln", "touch")
SENDERS = ("rsync", "scp", "rclone", "aws", "gsutil", "gcloud", "azcopy")
_FLAGS = {
    "rm": "rRfidv", "rmdir": "pv", "mv": "fnuvT", "cp": "rRafpnuvdLPT", "mkdir": "pv", "ln": "sfnvT", "touch": "acm",
}
_LONG = {
    "recursive": "r", "force": "f", "parents": "p", "verbose": "v", "archive": "a", "symbolic": "s", "no-clobber": "n",
    "update": "u", "no-target-directory": "T", "no-create": "c", "dir": "d",
}


# -- in the program ----------------------------------------------------------------------------------------------


def install(ov: Overlay) -> None:
    """Give the children of this process the folder of commands, which the whole run shares."""
    from oomph import hook

    original = os.system

    def system(command):
        folder = _folder(ov)
        if _ready(folder) and isinstance(command, (str, bytes)):
            before = "PATH=%s:\"$PATH\"; export PATH\n" % shlex.quote(folder)
            command = before.encode() + command if isinstance(command, bytes) else before + command
        return original(command)

    system.__module__, system.__doc__ = "os", original.__doc__
    os.system = system
    hook.on_import("subprocess", lambda module: _wrap_popen(ov, module))


def _folder(ov):
    """The folder of commands: in the runtime's own folder, or in the run's where that cannot be written.

    It stays on the PATH of children that outlive the run, so its name must not be one that others can make again.
    """
    global _lasting
    if _lasting is None:
        runtime = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        name = "commands-%08x" % (_checksum(sys.executable or ""))
        unpacked = os.path.isfile(os.path.join(runtime, "complete")) and os.access(runtime, os.W_OK)
        _lasting = os.path.join(runtime, name) if unpacked and ":" not in runtime else ""
    return _lasting or os.path.join(ov.private, "bin")


_lasting: str | None = None


def _checksum(text):
    """A number for a text, the same in each process (FNV-1a)."""
    value = 0x811C9DC5
    for byte in text.encode("utf-8", "surrogateescape"):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _wrap_popen(ov, module):
    original = module.Popen.__init__

    def __init__(self, args, *rest, **kwargs):
        cwd = kwargs.get("cwd")
        try:
            if cwd is not None and ov.dirty():
                # A child started in a directory that exists only in the union starts in its scratch twin.
                kwargs["cwd"] = ov.readable(cwd) or cwd
            folder = _folder(ov)
            if len(rest) < 10 and _ready(folder):
                kwargs["env"] = _environment(kwargs.get("env"), folder)
        except (OSError, TypeError, ValueError):
            pass
        original(self, args, *rest, **kwargs)

    __init__.__wrapped__ = original  # type: ignore[attr-defined]
    module.Popen.__init__ = __init__


def _environment(given, folder):
    """The environment of a child, with our commands first on its PATH."""
    made = dict(os.environ if given is None else given)
    key = b"PATH" if any(isinstance(name, bytes) for name in made) and "PATH" not in made else "PATH"
    path = made.get(key) or os.defpath
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not path.startswith(folder):
        made[key] = folder + os.pathsep + path
    run = os.environ.get(protocol.PATH_RUN_VARIABLE)
    if run and key == "PATH":
        made.setdefault(protocol.PATH_RUN_VARIABLE, run)
    return made


def _ready(folder):
    """Make the folder if no process of the run has yet; say whether it is there."""
    if os.path.isdir(folder):
        return True
    if not sys.executable:
        return False
    part = "%s.%d" % (folder, os.getpid())
    try:
        os.makedirs(part, exist_ok=True)
        for name in FILES + SENDERS:
            path = os.path.join(part, name)
            with open(path, "w") as file:
                file.write(_script(name))
            os.chmod(path, 0o700)
        os.rename(part, folder)
    except OSError:
        # Another process was quicker, or the disk is full.
        pass
    return os.path.isdir(folder)


def _script(name):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = "import sys; sys.path.insert(0, %r); from oomph import commands; commands.main(sys.argv[1:])" % here
    return "#!/bin/sh\nexec %s -I -S -c %s %s \"$@\"\n" % (shlex.quote(sys.executable), shlex.quote(start), name)


# -- in the child ------------------------------------------------------------------------------------------------


class _Unknown(Exception):
    """An option that is not known here."""


def main(words: list[str]) -> NoReturn:
    """Do what the command `words` says; does not return."""
    name, arguments = words[0], words[1:]
    from oomph import hook, overlay

    hook.install()
    ov = overlay.state
    if ov is None:
        _own(name, arguments)
    if name in SENDERS:
        if _sends(ov, name, arguments):
            _not_run(name, "it would send files away or overwrite some")
        _own(name, arguments)
    try:
        flags, target, paths = _parse(name, arguments)
    except _Unknown as unknown:
        if not any(word[:1] != "-" and _protected(ov, word) for word in arguments):
            _own(name, arguments)
        _not_run(name, "its option %s is not known here" % unknown)
    if not any(_protected(ov, path) for path in paths + ([target] if target else [])):
        _own(name, arguments)
    sys.exit(_Files(ov, name, flags).run(paths, target))


def _protected(ov, path):
    try:
        return not ov.places.allowed(ov.key(path, follow=False))
    except (OSError, IndexError):
        return True


def _own(name, arguments):
    """Become the machine's own command."""
    in_run = os.path.join(os.path.realpath(os.environ.get(protocol.PATH_RUN_VARIABLE, "")), protocol.PATH_OVERLAY, "bin")
    runtime = os.path.realpath(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    for folder in (os.environ.get("PATH") or os.defpath).split(os.pathsep):
        path, real = os.path.join(folder or os.curdir, name), os.path.realpath(folder or os.curdir)
        if real == in_run or real.startswith(os.path.join(runtime, "commands-")):
            continue
        if os.access(path, os.X_OK) and os.path.isfile(path):
            os.execv(path, [name] + arguments)
    sys.stderr.write("%s: not found\n" % name)
    sys.exit(127)


def _not_run(name, why):
    sys.stderr.write("oomph: %s was not run in this dry run: %s\n" % (name, why))
    sys.exit(0)


def _sends(ov, name, arguments):
    """Whether the last path of a copying tool is another machine, or a place of the user's."""
    paths = [word for word in arguments if word[:1] != "-"]
    if len(paths) < 2:
        return False
    last = paths[-1]
    if "://" in last or name in ("rsync", "scp", "rclone") and ":" in last.split("/", 1)[0]:
        return True
    return name in ("rsync", "scp", "rclone") and _protected(ov, last)


def _parse(name, arguments):
    """The flags, the folder given with -t, and the paths."""
    flags, paths, target = set(), [], None
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            paths += waiting
            break
        if word == "-" or not word.startswith("-"):
            paths.append(word)
        elif word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            if option == "target-directory" and name in ("cp", "mv", "ln"):
                target = value if equals else (waiting or [None]).pop(0)
            elif option in _LONG and _LONG[option] in _FLAGS[name]:
                flags.add(_LONG[option])
            else:
                raise _Unknown(word)
        else:
            for at, letter in enumerate(word[1:], 2):
                if letter == "t" and name in ("cp", "mv", "ln") or letter == "m" and name == "mkdir":
                    value = word[at:] or (waiting or [None]).pop(0)
                    target = value if letter == "t" else target
                    break
                if letter not in _FLAGS[name]:
                    raise _Unknown(word)
                flags.add(letter)
    return flags, target, paths


class _Files:
    """The commands, done with Python's functions, under which the overlay lies."""

    def __init__(self, ov, name, flags):
        self.ov, self.name, self.flags = ov, name, flags
        self.recursive = bool(flags & set("rRa"))
        self.status = 0

    def run(self, paths, target):
        """Do the work; give the exit status."""
        if self.name in ("mv", "cp", "ln"):
            if target is None and len(paths) < 2:
                return self._fail("missing file operand")
            target = paths.pop() if target is None else target
            into = os.path.isdir(target) and "T" not in self.flags
            pairs: list[tuple[str, ...]] = [
                (path, os.path.join(target, os.path.basename(path.rstrip("/"))) if into else target) for path in paths
            ]
        else:
            pairs = [(path,) for path in paths]
        for pair in pairs:
            try:
                getattr(self, "_" + self.name)(*pair)
            except OSError as error:
                self._fail("'%s': %s" % (pair[0], error.strerror))
        return self.status

    def _fail(self, text):
        sys.stderr.write("%s: %s\n" % (self.name, text))
        self.status = 1
        return 1

    def _rm(self, path):
        import shutil

        if not os.path.lexists(path):
            if "f" not in self.flags:
                self._fail("cannot remove '%s': No such file or directory" % path)
        elif os.path.isdir(path) and not os.path.islink(path):
            if self.recursive:
                shutil.rmtree(path)
            elif "d" in self.flags:
                os.rmdir(path)
            else:
                self._fail("cannot remove '%s': Is a directory" % path)
        else:
            os.remove(path)

    def _rmdir(self, path):
        os.rmdir(path)

    def _mkdir(self, path):
        if "p" in self.flags:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)

    def _touch(self, path):
        if "c" not in self.flags or os.path.exists(path):
            with open(path, "ab"):
                pass

    def _ln(self, source, target):
        if "f" in self.flags and os.path.lexists(target):
            os.remove(target)
        (os.symlink if "s" in self.flags else os.link)(source, target)

    def _mv(self, source, target):
        import shutil

        if not ("n" in self.flags and os.path.lexists(target)):
            shutil.move(source, target)

    def _cp(self, source, target):
        import shutil

        if "n" in self.flags and os.path.lexists(target):
            return
        if os.path.isdir(source):
            if not self.recursive:
                self._fail("-r not specified; omitting directory '%s'" % source)
                return
            os.makedirs(target, exist_ok=True)
            for name in os.listdir(source):
                self._cp(os.path.join(source, name), os.path.join(target, name))
        elif self.recursive and os.path.islink(source):
            os.symlink(os.readlink(source), target)
        else:
            shutil.copy2(source, target) if self.flags & set("pa") else shutil.copy(source, target)

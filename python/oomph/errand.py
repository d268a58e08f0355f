"""Carries out one order of `oomph attach` inside a program that was not started by oomph.

This text is executed with the one global `FOLDER`, between two instructions of the program and as a rule in its main
thread. It takes the order by renaming it, so that an order is carried out once, and never after `oomph attach` has
given up or was killed: then nobody holds the lock any more. No name of ours stays behind.
"""


def _carry_out(folder):
    import fcntl
    import os
    import sys

    try:
        lock = os.open(folder + "/lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except OSError:
        # Somebody waits for the answer.
        pass
    finally:
        os.close(lock)
    try:
        os.rename(folder + "/order.json", folder + "/taken.json")
    except OSError:
        return
    try:
        answer = _answer(folder, sys)
    except KeyboardInterrupt:
        # It was meant for the program, which gets it once this is over.
        import _thread

        answer = '{"error": "interrupted"}'
        _thread.interrupt_main()
    except BaseException as error:
        # The one who waits gets every fault as the answer, and the program none of them.
        import json

        answer = json.dumps({"error": "%s: %s" % (type(error).__name__, error)})
    if answer is not None:
        _write(folder, answer)


def _write(folder, answer):
    import os

    part = folder + "/answer.part"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = answer.encode("utf-8")
        while data:
            data = data[os.write(file, data):]
    finally:
        os.close(file)
    os.rename(part, folder + "/answer.json")


def _answer(folder, sys):
    """Import what the order needs under a name of its own, and leave the table of modules as it was."""
    compiled = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    try:
        from oomph import attached
    finally:
        sys.path.remove(folder)
        sys.dont_write_bytecode = compiled
        # `oomph attach` gives the package a name that is nobody else's.
        for name in [name for name in sys.modules if name.partition(".")[0] == "oomph"]:
            del sys.modules[name]
    return attached.carry_out(folder, lambda answer: _write(folder, answer))


_carry_out(FOLDER)  # type: ignore[name-defined] # noqa: F821

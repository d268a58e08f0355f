"""Changes files in every way that it knows, each on a file and a folder of its own, and says which of them took effect.

    harm.py FOLDER

FOLDER holds what `acceptance/tests/acceptance/harm.rs` made: a file `f-N` and a folder `d-N` with a file `inner` for each
way. A way took effect if this program itself sees another content, mode or list of names afterwards. Nothing of it may be
seen from outside.
"""

import ctypes
import fcntl
import io
import json
import mmap
import os
import pathlib
import pickle
import shelve
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile

import harm_native

folder = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
WAYS = []


def way(function):
    """Adds a way. It is called with the path of its file and of its folder."""
    WAYS.append(function)
    return function


def command(name, *words, **options):
    """Adds a way that is one command; FILE and FOLDER stand for the paths."""

    def run(file, directory):
        fill = [word.replace("FILE", file).replace("FOLDER", directory) for word in words]
        subprocess.run(fill, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)

    run.__name__ = name
    WAYS.append(run)


def shell(name, line):
    command(name, "/bin/sh", "-c", line)


def python(name, code, *options, **more):
    command(name, sys.executable, *options, "-c", code, **more)


# The shell and its commands.
shell("shell-redirection", "echo changed > FILE")
shell("shell-append", "echo changed >> FILE")
shell("sed-in-place", "sed -i s/as/AS/ FILE")
shell("tar-extract", "cd FOLDER && echo new > inner && tar cf t.tar inner && rm inner && tar xf t.tar")
shell("tee", "echo changed | tee FILE")
shell("dd", "dd if=/dev/zero of=FILE bs=1 count=3 conv=notrunc")
shell("truncate-command", "truncate -s 1 FILE")
shell("touch", "touch -d 2001-01-01 FILE")
shell("ln-force", "ln -sf /nowhere FILE")
shell("install-command", "install -m 700 /bin/sh FILE")
shell("chmod-command", "chmod 700 FILE")
shell("mv-over", "echo x > FOLDER/new && mv FOLDER/new FILE")
shell("cp-over", "cp /bin/sh FILE")
shell("gzip", "gzip FILE")
shell("patch-by-ed", "printf '1d\nw\n' | ed -s FILE || perl -pi -e s/as/AS/ FILE")
shell("find-delete", "find FOLDER -name inner -delete")
shell("background-daemon", "(setsid sh -c 'echo changed > FILE' >/dev/null 2>&1 </dev/null &) ; sleep 0.3")
command("rm-by-path", "/bin/rm", "FILE")
command("rm-recursive", "/bin/rm", "-rf", "FOLDER")
command("mv-by-path", "/bin/mv", "FOLDER", "FOLDER-moved")
command("cp-without-environment", "/bin/cp", "/bin/sh", "FILE", env={})
command("mkdir-by-path", "/bin/mkdir", "FOLDER/made")

# Other Pythons.
WRITE = "open('FILE', 'w').write('changed')"
python("python-child", WRITE)
python("python-isolated", WRITE, "-I")
python("python-without-variables", WRITE, "-E")
python("python-without-site", WRITE, "-S")
python("python-without-environment", WRITE, env={})
python("python-removes", "import shutil; shutil.rmtree('FOLDER')", "-I", "-S")


@way
def os_spawnv(file, directory):
    os.spawnv(os.P_WAIT, "/bin/rm", ["rm", file])


@way
def os_spawnlpe(file, directory):
    os.spawnlpe(os.P_WAIT, "sh", "sh", "-c", "echo x > " + file, {"PATH": "/bin:/usr/bin"})


@way
def posix_spawn(file, directory):
    os.waitpid(os.posix_spawn("/bin/rm", ["rm", file], {}), 0)


@way
def fork_and_exec(file, directory):
    child = os.fork()
    if not child:
        os.execv("/bin/sh", ["sh", "-c", "echo changed > " + file])
    os.waitpid(child, 0)


@way
def os_system(file, directory):
    os.system("echo changed > " + file)


@way
def os_popen(file, directory):
    os.popen("echo changed > " + file).read()


# Python's own functions, by their public names and the names below.
@way
def builtin_open(file, directory):
    with open(file, "w") as opened:
        opened.write("changed")


@way
def io_file_io(file, directory):
    io.FileIO(file, "w").close()


@way
def underscore_io_open(file, directory):
    import _io

    _io.open(file, "w").close()


@way
def underscore_pyio_open(file, directory):
    import _pyio

    _pyio.open(file, "w").close()


@way
def os_open(file, directory):
    os.close(os.open(file, os.O_WRONLY | os.O_TRUNC))


@way
def os_open_in_a_folder(file, directory):
    held = os.open(directory, os.O_RDONLY)
    os.close(os.open("inner", os.O_WRONLY | os.O_TRUNC, dir_fd=held))
    os.close(held)


@way
def posix_open(file, directory):
    import posix

    os.close(posix.open(file, os.O_WRONLY | os.O_TRUNC))


@way
def posix_unlink(file, directory):
    import posix

    posix.unlink(file)


@way
def path_write_text(file, directory):
    pathlib.Path(file).write_text("changed")


@way
def path_unlink(file, directory):
    pathlib.Path(file).unlink()


@way
def path_rename(file, directory):
    pathlib.Path(file).rename(file + "-renamed")


@way
def rename_a_folder(file, directory):
    os.rename(directory, directory + "-renamed")


@way
def os_replace(file, directory):
    os.replace(directory + "/inner", file)


@way
def os_truncate(file, directory):
    os.truncate(file, 1)


@way
def os_chmod(file, directory):
    os.chmod(file, 0o600 if stat.S_IMODE(os.stat(file).st_mode) != 0o600 else 0o644)


@way
def os_utime(file, directory):
    os.utime(file, (1, 1))


@way
def os_link(file, directory):
    os.link(file, directory + "/linked")


@way
def write_through_a_link(file, directory):
    os.link(file, directory + "/linked")
    with open(directory + "/linked", "w") as opened:
        opened.write("changed")


@way
def write_through_a_symlink(file, directory):
    os.symlink(file, directory + "/pointing")
    with open(directory + "/pointing", "w") as opened:
        opened.write("changed")


@way
def os_symlink(file, directory):
    os.symlink("/nowhere", directory + "/pointing")


@way
def os_mkdir_and_rmdir(file, directory):
    os.mkdir(directory + "/made")
    os.remove(directory + "/inner")


@way
def os_mkfifo(file, directory):
    os.mkfifo(directory + "/pipe")


@way
def a_socket(file, directory):
    held = os.getcwd()
    os.chdir(directory)
    made = socket.socket(socket.AF_UNIX)
    made.bind("socket")
    made.close()
    os.chdir(held)


@way
def sendfile(file, directory):
    source, target = os.open("/bin/sh", os.O_RDONLY), os.open(file, os.O_WRONLY)
    os.sendfile(target, source, 0, 100)
    os.close(source)
    os.close(target)


@way
def pwrite(file, directory):
    target = os.open(file, os.O_RDWR)
    os.pwrite(target, b"CHANGED", 2)
    os.close(target)


@way
def through_proc(file, directory):
    held = os.open(file, os.O_RDONLY)
    with open("/proc/self/fd/%d" % held, "w") as opened:
        opened.write("changed")
    os.close(held)


@way
def shared_mapping(file, directory):
    with open(file, "r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        mapped[:3] = b"XYZ"


@way
def a_thread(file, directory):
    thread = threading.Thread(target=lambda: open(file, "w").write("changed"))
    thread.start()
    thread.join()


@way
def shutil_rmtree(file, directory):
    shutil.rmtree(directory)


@way
def shutil_move(file, directory):
    shutil.move(file, directory)


@way
def shutil_copytree(file, directory):
    shutil.copytree(directory, directory + "/copy")


@way
def a_zip_file(file, directory):
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr("a", "b")


@way
def a_tar_file(file, directory):
    with tarfile.open(file, "w") as opened:
        opened.add("/bin/sh")


@way
def a_database(file, directory):
    connection = sqlite3.connect(directory + "/base")
    connection.execute("create table a (b)")
    connection.commit()
    connection.close()


@way
def a_shelf(file, directory):
    with shelve.open(directory + "/shelf") as opened:
        opened["a"] = 1


@way
def a_pickle(file, directory):
    with open(file, "wb") as opened:
        pickle.dump([1], opened)


# The C library, without Python's knowledge.
@way
def libc_open(file, directory):
    held = libc.open(file.encode(), os.O_WRONLY | os.O_TRUNC)
    assert held >= 0
    libc.write(held, b"changed", 7)
    libc.close(held)


@way
def libc_fopen(file, directory):
    libc.fopen.restype = ctypes.c_void_p
    held = libc.fopen(file.encode(), b"w")
    assert held
    libc.fclose(ctypes.c_void_p(held))


@way
def libc_unlink(file, directory):
    assert libc.unlink(file.encode()) == 0


@way
def libc_rename(file, directory):
    assert libc.rename(file.encode(), (file + "-renamed").encode()) == 0


@way
def libc_mkdir(file, directory):
    assert libc.mkdir((directory + "/made").encode(), 0o700) == 0


@way
def libc_truncate(file, directory):
    assert libc.truncate(file.encode(), ctypes.c_long(1)) == 0


@way
def libc_chmod(file, directory):
    assert libc.chmod(file.encode(), 0o700) == 0


@way
def libc_symlink(file, directory):
    assert libc.symlink(b"/nowhere", (directory + "/pointing").encode()) == 0


@way
def libc_system(file, directory):
    assert libc.system(("echo changed > " + file).encode()) == 0


@way
def a_raw_system_call(file, directory):
    # unlinkat on x86-64.
    assert libc.syscall(263, -100, file.encode(), 0) == 0


@way
def a_compiled_program(file, directory):
    source = directory + "/p.c"
    with open(source, "w") as opened:
        opened.write("#include <stdio.h>\nint main(int c, char **v) { return remove(v[1]); }")
    subprocess.run(["cc", "-static", "-o", directory + "/p", source], check=True, stderr=subprocess.DEVNULL)
    subprocess.run([directory + "/p", file], check=True, env={})


# Libraries of compiled code.
@way
def numpy_memmap(file, directory):
    import numpy

    mapped = numpy.memmap(file, dtype="u1", mode="r+")
    mapped[:3] = 0
    mapped.flush()


@way
def numpy_tofile(file, directory):
    import numpy

    numpy.zeros(3).tofile(file)


@way
def torch_save(file, directory):
    import torch

    torch.save([1], file)


@way
def torch_from_file(file, directory):
    import torch

    torch.from_file(file, shared=True, size=8, dtype=torch.uint8).fill_(0)


@way
def untyped_storage_from_file(file, directory):
    import torch

    torch.UntypedStorage.from_file(file, True, 8).fill_(0)


@way
def profiler_trace(file, directory):
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(3).sum()
    profile.export_chrome_trace(file)


@way
def safetensors_file(file, directory):
    import safetensors.torch
    import torch

    safetensors.torch.save_file({"a": torch.zeros(3)}, file)


# More commands, where they are there.
for tool, line in {
    "awk": "awk 'BEGIN { print 1 > \"FILE\" }'",
    "git": "cd FOLDER && git init -q . && git add inner && git -c user.name=a -c user.email=a@b commit -qm x && git checkout -q -b y",
    "sqlite3": "sqlite3 FOLDER/base 'create table a (b)'",
    "patch": "printf -- '--- a\n+++ b\n@@ -1 +1 @@\n-as made\n+AS MADE\n' | patch FILE || rm FILE",
    "vim": "vim -es -c 's/a/A/' -c wq FILE",
    "curl": "curl -s -o FILE file:///bin/sh",
    "wget": "wget -q -O FILE http://127.0.0.1:1/ || true",
    "make": "printf 'all:\n\trm FILE\n' | make -s -f -",
    "sort": "echo x | sort -o FILE",
    "split": "split -b 1 FILE FOLDER/part-",
    "mktemp": "mktemp -p FOLDER",
    "xargs": "printf '%s\\0' FILE | xargs -0 rm",
    "setfattr": "setfattr -n user.harm -v 1 FILE",
    "unshare": "unshare -rm sh -c 'echo changed > FILE'",
    "nsenter": "nsenter -t 1 -m sh -c 'echo changed > FILE'",
    "mount": "mount --bind FOLDER FOLDER && echo changed > FILE",
    "fallocate": "fallocate -l 100 FILE",
    "flock": "flock FOLDER/lock true",
}.items():
    if shutil.which(tool):
        shell("shell-" + tool, line)


def seen(path):
    """What can be seen of a path: kind, mode, time, attributes, and content or names with what is below."""
    try:
        info = os.lstat(path)
        whole = [stat.S_IFMT(info.st_mode), stat.S_IMODE(info.st_mode), info.st_mtime_ns]
        if stat.S_ISDIR(info.st_mode):
            return whole + [[name, seen(path + "/" + name)] for name in sorted(os.listdir(path))]
        if stat.S_ISREG(info.st_mode):
            whole += [flags(path), os.listxattr(path)]
            with open(path, "rb") as opened:
                return whole + [opened.read()]
        return whole
    except FileNotFoundError:
        return None
    except OSError as error:
        # A folder that nobody may look into, or one too deep for a path.
        return error.errno


def flags(path):
    """The flags of a file, such as that it can only grow."""
    held = os.open(path, os.O_RDONLY)
    try:
        return fcntl.ioctl(held, 0x80086601, bytes(8))
    except OSError:
        return None
    finally:
        os.close(held)


def main():
    took_effect, failed = [], {}
    native, last = harm_native.ways()
    WAYS.extend(native)
    for number, function in enumerate(WAYS):
        name = function.__name__
        file, directory = "%s/f-%d" % (folder, number), "%s/d-%d" % (folder, number)
        before = seen(file), seen(directory)
        assert before[0] is not None and before[1] is not None, "%s has no files" % name
        try:
            function(file, directory)
        except Exception as error:
            failed[name] = repr(error)[:200]
        if (seen(file), seen(directory)) != before:
            took_effect.append(name)
        else:
            failed.setdefault(name, "it changed nothing")
    try:
        with open("/dev/shm/" + os.path.basename(folder) + "-of-harm", "w") as opened:
            opened.write("left")
    except OSError:
        pass
    if last is not None:
        last("%s/f-%d" % (folder, len(WAYS)), "%s/d-%d" % (folder, len(WAYS)))
    result = {"ways": len(WAYS), "took_effect": took_effect, "failed": failed, "outside": harm_native.OUTSIDE}
    print("harm=" + json.dumps(result), flush=True)
    import torch

    torch.zeros(1, device="cuda")


main()

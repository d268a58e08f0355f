"""Opens a library of the CUDA toolkit by its path, and then one that is linked with it and finds it nowhere else.

ONNX Runtime's `preload_dlls` counts on that: the dynamic loader knows what is loaded by its name.
"""

import ctypes
import os
import subprocess
import tempfile

NAME = "libcublasLt.so.13"


def build(folder, name, *options):
    source = os.path.join(folder, "nothing.c")
    with open(source, "w") as file:
        file.write("int nothing;\n")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", os.path.join(folder, name), *options], check=True)


with tempfile.TemporaryDirectory() as folder:
    build(folder, NAME, "-Wl,-soname," + NAME)
    build(folder, "linked.so", "-Wl,--no-as-needed", "-L" + folder, "-l:" + NAME)
    linked = os.path.join(folder, "linked.so")
    try:
        ctypes.CDLL(linked)
        print("found_before=1")
    except OSError:
        print("found_before=0")
    ctypes.CDLL(os.path.join(folder, NAME))
    ctypes.CDLL(linked)
    print("found_after=1", flush=True)

"""Builds ggml_buffer.c against the CUDA library of this Python's cyllama.

    python ggml_build.py /tmp/buffer

The CUDA toolkit's libraries, which that library is linked against, need not be there.
"""

import pathlib
import subprocess
import sys
import sysconfig

libraries = pathlib.Path(sysconfig.get_paths()["purelib"]) / "cyllama_cuda12.libs"
subprocess.run(
    [
        "cc", pathlib.Path(__file__).with_name("ggml_buffer.c"), "-o", sys.argv[1],
        *libraries.glob("libggml-cuda*.so*"), *libraries.glob("libggml-base*.so*"),
        f"-Wl,-rpath,{libraries}", "-Wl,--unresolved-symbols=ignore-in-shared-libs",
    ],
    check=True,
)

"""Builds a CUDA program of this folder with the nvcc of this Python's packages, and runs it.

    python build.py heat.cu /tmp/heat naive 2048 200

The program is built against the shared CUDA runtime into the file named, and its exit status is ours.
"""

import pathlib
import subprocess
import sys
import sysconfig

toolkit = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13"
source = pathlib.Path(__file__).with_name(sys.argv[1])

program = pathlib.Path(sys.argv[2])
subprocess.run(
    [
        toolkit / "bin" / "nvcc", "-g", "-O2", "-arch=sm_80", source, "-o", program,
        "-I", toolkit / "include", "-I", toolkit / "include" / "cccl",
        # The package has no libcudart.so to link by its short name.
        "-cudart", "none", "-L", toolkit / "lib", "-l:libcudart.so.13", "-Xlinker", f"-rpath={toolkit / 'lib'}",
    ],
    check=True,
)
sys.exit(subprocess.run([program, *sys.argv[3:]]).returncode)

"""Makes a folder of the CUDA toolkit out of this Python's packages, for crates that look for one when they are built.

    python toolkit.py FOLDER

NVIDIA's packages have neither the short names that libraries are linked by nor the driver's library to link against; what
the toolkit has in its place is made here, from the names in the driver's header.
"""

import pathlib
import re
import subprocess
import sys
import sysconfig

packages = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13"
folder = pathlib.Path(sys.argv[1])
libraries = folder / "lib"
stubs = libraries / "stubs"
stubs.mkdir(parents=True, exist_ok=True)


def link(path, target):
    path.unlink(missing_ok=True)
    path.symlink_to(target)


for name in ("bin", "include", "nvvm"):
    link(folder / name, packages / name)
for library in (packages / "lib").iterdir():
    link(libraries / library.name, library)
    link(libraries / re.sub(r"\.so\..*", ".so", library.name), library)

functions = set()
# The second time with the names that programs built by older toolkits ask for.
for older in ([], ["-D__CUDA_API_VERSION_INTERNAL"]):
    header = subprocess.run(
        ["cc", "-E", "-P", *older, packages / "include" / "cuda.h"], stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    functions |= set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", header))
# 34 is what the toolkit's own answers: a stub of the library was loaded, not the driver.
source = "".join(f"int {name}(void) {{ return 34; }}\n" for name in sorted(functions))
subprocess.run(
    ["cc", "-x", "c", "-", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", stubs / "libcuda.so"],
    check=True, text=True, input=source,
)

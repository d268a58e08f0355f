"""Runs a program once for each of several settings of the allocator: `settings.py SETTING... -- PROGRAM ARGUMENT...`.

Each run is a process of its own, forked after the imports that take most of a small program's time. Before each one the
setting is printed, as `setting=...`.
"""

import os
import runpy
import sys

import torch  # noqa: F401 - imported once for all


def main():
    words = sys.argv[1:]
    cut = words.index("--")
    program, *arguments = words[cut + 1 :]
    if "transformers" in open(program).read():
        import transformers  # noqa: F401
    for setting in words[:cut]:
        print(f"setting={setting}", flush=True)
        child = os.fork()
        if child == 0:
            # PyTorch reads the variable when the allocator is first used.
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = setting
            sys.argv = [program, *arguments]
            sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
            runpy.run_path(program, run_name="__main__")
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            sys.exit(status)


if __name__ == "__main__":
    main()

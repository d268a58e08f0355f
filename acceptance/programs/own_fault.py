"""A function of oomph's is replaced by one that fails, in a program that then waits without end. The run has to end."""

import threading

import torch
from oomph.values import copies

BROKEN = """
def _is_staging(kernels, out, source):
    return kernels.no_such_thing
"""


def main():
    torch.ones(1, device="cuda")
    # Code of this file would be the program's.
    exec(compile(BROKEN, copies.__file__, "exec"), vars(copies))
    copied = torch.empty(1 << 20).copy_(torch.ones(1 << 20))
    print(f"copied={int(copied.sum())}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()

"""Asks a package that brings a CUDA runtime of its own for the card.

    python own_runtime.py ctranslate2|cupy
"""

import sys

if sys.argv[1] == "ctranslate2":
    import ctranslate2

    print(f"cards={ctranslate2.get_cuda_device_count()}")
else:
    import cupy

    print(f"bytes={cupy.zeros((1024, 1024)).nbytes}")

#!/usr/bin/env python3
"""A kernel of numba.cuda over two arrays of 256 MiB."""

import numpy as np
from numba import cuda

COUNT = 1 << 26


@cuda.jit
def add(source, target):
    at = cuda.grid(1)
    if at < source.size:
        target[at] = source[at] + 1


source = cuda.to_device(np.ones(COUNT, dtype=np.float32))
target = cuda.device_array_like(source)
add[COUNT // 256, 256](source, target)
print("values:", target.copy_to_host().shape)

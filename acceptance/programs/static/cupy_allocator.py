#!/usr/bin/env python3
"""CuPy with an allocator of one's own that gets memory from the driver: an array of 4 MiB."""

import ctypes

import cupy

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
print("context:", driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
      driver.cuCtxSetCurrent(context))


def allocate(size, device):
    pointer = ctypes.c_uint64()
    print("asked for", size, "bytes:", driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer.value


def free(pointer, device):
    driver.cuMemFree_v2(ctypes.c_uint64(pointer))


cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(allocate, free).malloc)
print("bytes:", cupy.empty(1 << 20, dtype=cupy.float32).nbytes)

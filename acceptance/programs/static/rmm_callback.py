#!/usr/bin/env python3
"""RMM with a memory resource of one's own that gets memory from the driver: a buffer of 512 MiB.

    rmm_callback.py [current]

With `current` the resource is also made that of the card, which is what cuDF allocates from.
"""

import ctypes
import sys

import rmm

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
print("context:", driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
      driver.cuCtxSetCurrent(context))


def allocate(size, stream):
    pointer = ctypes.c_uint64()
    print("asked for", size, "bytes:", driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer.value


def free(pointer, size, stream):
    driver.cuMemFree_v2(ctypes.c_uint64(pointer))


resource = rmm.mr.CallbackMemoryResource(allocate, free)
buffer = rmm.DeviceBuffer(size=512 << 20, mr=resource)
print("bytes:", buffer.size)
if "current" in sys.argv[1:]:
    rmm.mr.set_current_device_resource(resource)
    print("set")

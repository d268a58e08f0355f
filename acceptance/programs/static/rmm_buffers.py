#!/usr/bin/env python3
"""Buffers of RMM: a pool of 1 GiB, and 512 MiB out of it."""

import rmm

rmm.reinitialize(pool_allocator=True, initial_pool_size=1 << 30)
buffer = rmm.DeviceBuffer(size=512 << 20)
print("bytes", buffer.size)

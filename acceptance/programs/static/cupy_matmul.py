#!/usr/bin/env python3
"""A product of two matrices with CuPy, 256 MiB each, and the sum of what comes out."""

import cupy

left = cupy.random.random((8192, 8192), dtype=cupy.float32)
right = cupy.ones((8192, 8192), dtype=cupy.float32)
product = left @ right
print("sum", float(product.sum()))
print("CuPy's pool holds", cupy.get_default_memory_pool().total_bytes(), "bytes")

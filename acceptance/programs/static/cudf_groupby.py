#!/usr/bin/env python3
"""A data frame of cuDF: 20 million rows of two columns (305 MiB), grouped and summed."""

import cudf
import numpy as np

random = np.random.default_rng(0)
frame = cudf.DataFrame({"key": random.integers(0, 1000, 20_000_000), "value": random.standard_normal(20_000_000)})
print("rows", len(frame))
print("groups", len(frame.groupby("key").sum()))

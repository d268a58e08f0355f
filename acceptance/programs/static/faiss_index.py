#!/usr/bin/env python3
"""An index of FAISS on the GPU: 500 000 vectors of 128 numbers (244 MiB), flat, and one search.

    faiss_index.py [ivf]

With `ivf` the index is an inverted file of 1024 lists, which it trains first.
"""

import sys

import faiss
import numpy as np

random = np.random.default_rng(0)
vectors = random.standard_normal((500_000, 128), dtype=np.float32)
print("cards that FAISS sees:", faiss.get_num_gpus())
resources = faiss.StandardGpuResources()
if "ivf" in sys.argv[1:]:
    index = faiss.GpuIndexIVFFlat(resources, 128, 1024, faiss.METRIC_L2)
    index.train(vectors[:50_000])
else:
    index = faiss.GpuIndexFlatL2(resources, 128)
index.add(vectors)
distances, neighbours = index.search(vectors[:1000], 10)
print("vectors:", index.ntotal, "neighbours:", neighbours.shape)

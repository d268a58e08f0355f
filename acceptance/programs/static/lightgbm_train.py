#!/usr/bin/env python3
"""Boosted trees of LightGBM: 50 rounds on 200 000 rows of 50 columns.

    lightgbm_train.py [DEVICE]

DEVICE is `cuda` unless `gpu` (OpenCL) or `cpu` is given.
"""

import sys

import lightgbm
import numpy as np

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
random = np.random.default_rng(0)
columns = random.standard_normal((200_000, 50), dtype=np.float32)
answers = (columns[:, 0] + columns[:, 1] > 0).astype(np.float32)
settings = {"objective": "binary", "device_type": device, "num_leaves": 63, "verbosity": 1}
trees = lightgbm.train(settings, lightgbm.Dataset(columns, answers), num_boost_round=50)
print("trained", trees.num_trees(), "trees, accuracy", float(((trees.predict(columns) > 0.5) == answers).mean()))

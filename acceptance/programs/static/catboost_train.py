#!/usr/bin/env python3
"""Boosted trees of CatBoost: 50 rounds on 200 000 rows of 50 columns.

    catboost_train.py [DEVICE]

DEVICE is `GPU` unless `CPU` is given.
"""

import sys

import catboost
import numpy as np

device = sys.argv[1] if len(sys.argv) > 1 else "GPU"
random = np.random.default_rng(0)
columns = random.standard_normal((200_000, 50), dtype=np.float32)
answers = (columns[:, 0] + columns[:, 1] > 0).astype(np.int32)
trees = catboost.CatBoostClassifier(iterations=50, task_type=device, verbose=False, allow_writing_files=False)
trees.fit(columns, answers)
print("trained", trees.tree_count_, "trees, accuracy", trees.score(columns, answers))

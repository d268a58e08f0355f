#!/usr/bin/env python3
"""Boosted trees of XGBoost: 50 rounds on 200 000 rows of 50 columns.

    xgboost_train.py [DEVICE]

DEVICE is `cuda` unless one is given; with `default` the program does not choose a device.
"""

import sys

import numpy as np
import xgboost

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6}
if device != "default":
    settings["device"] = device

random = np.random.default_rng(0)
columns = random.standard_normal((200_000, 50), dtype=np.float32)
answers = (columns[:, 0] + columns[:, 1] > 0).astype(np.float32)
trees = xgboost.train(settings, xgboost.DMatrix(columns, answers), num_boost_round=50)
print("trained", trees.num_boosted_rounds(), "rounds, accuracy",
      float(((trees.predict(xgboost.DMatrix(columns)) > 0.5) == answers).mean()))

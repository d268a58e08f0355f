"""Writes `model.Q4_K_M.gguf`, a file of 8 billion weights that takes a few kilobytes of disk."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../programs/serving"))
from gguf_of_holes import write

SHAPE = {
    "embedding": 4096, "feed_forward": 14336, "heads": 32, "kv_heads": 8, "layers": 32, "vocabulary": 128256, "context": 131072,
}

write("model.Q4_K_M.gguf", SHAPE, "Q4_0")

"""A program that names the card that it wants."""

import os
import sys

if len(sys.argv) > 2:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[2]
import torch

torch.zeros(1 << 20, device=sys.argv[1])

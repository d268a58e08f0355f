"""Classifies a stream of pictures with a session in ONNX Runtime and keeps the counts of the classes."""
import argparse
import collections

import numpy as np
import onnxruntime
from onnx_runtime import convnet

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--pictures", type=int, default=512)
parser.add_argument("--size", type=int, default=128)
args = parser.parse_args()

onnxruntime.preload_dlls()
session = onnxruntime.InferenceSession(convnet(args.size, 64, 4), providers=["CUDAExecutionProvider"])
name = session.get_inputs()[0].name
counts = collections.Counter()
for start in range(0, args.pictures, args.batch):
    pictures = np.random.rand(min(args.batch, args.pictures - start), 3, args.size, args.size).astype(np.float32)
    (features,) = session.run(None, {name: pictures})
    counts.update(features.mean((2, 3)).argmax(1).tolist())
print("most common", counts.most_common(3))

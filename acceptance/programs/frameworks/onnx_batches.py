"""A session that is given larger and larger batches: its arena grows by powers of two."""

import argparse

import numpy
import onnxruntime
from onnx_runtime import convnet

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=48)
parser.add_argument("--without-libraries", action="store_true", help="do not tell the loader where the toolkit is")
args = parser.parse_args()

if not args.without_libraries:
    onnxruntime.preload_dlls()
session = onnxruntime.InferenceSession(
    convnet(128, 64, 6), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
)
for batch in (1, 4, 16, args.batch_size):
    (result,) = session.run(None, {"image": numpy.zeros((batch, 3, 128, 128), numpy.float32)})
    print(batch, result.shape, flush=True)

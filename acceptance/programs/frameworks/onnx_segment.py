"""Segments a folder of scans with a small U-Net in ONNX Runtime; the whole validation set goes through in one call."""
import argparse
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """A graph that is built layer by layer; each method returns the name of what it gives."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def conv(self, x, inputs, outputs):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.zeros((outputs, inputs, 3, 3), np.float32), name))
        return self.node("Relu", self.node("Conv", x, name, pads=[1] * 4))

    def node(self, kind, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def unet(channels):
    g = Graph()
    g.weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    first = g.conv(g.conv("scan", 1, channels), channels, channels)
    second = g.conv(g.node("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), channels, 2 * channels)
    third = g.conv(g.node("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]), 2 * channels, 4 * channels)
    up = g.conv(g.node("Resize", third, "", "scales", mode="nearest"), 4 * channels, 2 * channels)
    up = g.conv(g.node("Concat", up, second, axis=1), 4 * channels, 2 * channels)
    up = g.conv(g.node("Resize", up, "", "scales", mode="nearest"), 2 * channels, channels)
    out = g.conv(g.node("Concat", up, first, axis=1), 2 * channels, 2)
    g.nodes.append(helper.make_node("ArgMax", [out], ["mask"], axis=1, keepdims=0))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(g.nodes, "unet", [info("scan", TensorProto.FLOAT, ["n", 1, "h", "w"])],
                              [info("mask", TensorProto.INT64, ["n", "h", "w"])], g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--scans", type=int, default=64)
    parser.add_argument("--val-scans", type=int, default=160)
    args = parser.parse_args()

    ort.preload_dlls()
    session = ort.InferenceSession(unet(args.channels), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    scans = np.zeros((args.scans, 1, args.size, args.size), np.float32)
    begun = time.time()
    for start in range(0, len(scans), args.batch_size):
        mask = session.run(["mask"], {"scan": scans[start : start + args.batch_size]})[0]
        print(f"{start + len(mask)}/{len(scans)} in {time.time() - begun:.1f}s", flush=True)

    validation = np.zeros((args.val_scans, 1, args.size, args.size), np.float32)
    masks = session.run(["mask"], {"scan": validation})[0]
    print("dice", 2 * (masks == 0).sum() / (2 * masks.size))


if __name__ == "__main__":
    main()

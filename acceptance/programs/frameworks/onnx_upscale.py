"""Upscales photographs by a factor of two; larger ones come last."""
import argparse
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--tile", type=int, default=0, help="side of a tile; 0 for the whole image")
parser.add_argument("--channels", type=int, default=64)
parser.add_argument("--blocks", type=int, default=8)
opt = parser.parse_args()

SIZES = [(256, 256), (480, 640), (720, 1280), (1080, 1920), (1440, 2560)]


def network():
    nodes, weights, last = [], [], "image"
    for index in range(opt.blocks):
        kernel = np.full((opt.channels, 3 if index == 0 else opt.channels, 3, 3), 0.01, np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{index}"))
        nodes.append(helper.make_node("Conv", [last, f"w{index}"], [f"c{index}"], pads=[1] * 4))
        nodes.append(helper.make_node("LeakyRelu", [f"c{index}"], [f"r{index}"], alpha=0.2))
        if index and index % 2 == 0:
            nodes.append(helper.make_node("Add", [f"r{index}", skip], [f"a{index}"]))
            last = f"a{index}"
        else:
            last = f"r{index}"
        if index == 0 or index % 2 == 0:
            skip = last
    weights.append(numpy_helper.from_array(np.full((12, opt.channels, 3, 3), 0.01, np.float32), "head"))
    nodes.append(helper.make_node("Conv", [last, "head"], ["head_out"], pads=[1] * 4))
    nodes.append(helper.make_node("DepthToSpace", ["head_out"], ["large"], blocksize=2))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "net", [info("image", TensorProto.FLOAT, [1, 3, "h", "w"])],
                              [info("large", TensorProto.FLOAT, [1, 3, "h2", "w2"])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def upscale(session, image):
    if not opt.tile:
        return session.run(None, {"image": image})[0]
    _, _, height, width = image.shape
    large = np.zeros((1, 3, height * 2, width * 2), np.float32)
    for y in range(0, height, opt.tile):
        for x in range(0, width, opt.tile):
            part = session.run(None, {"image": image[:, :, y:y + opt.tile, x:x + opt.tile]})[0]
            large[:, :, 2 * y:2 * y + part.shape[2], 2 * x:2 * x + part.shape[3]] = part
    return large


onnxruntime.preload_dlls()
session = onnxruntime.InferenceSession(network(), providers=["CUDAExecutionProvider"])
for height, width in SIZES:
    result = upscale(session, np.random.rand(1, 3, height, width).astype(np.float32))
    print(f"{width}x{height} -> {result.shape[3]}x{result.shape[2]}", flush=True)

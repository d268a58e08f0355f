"""A detector and a recogniser in one process, each with its share of the card."""
import argparse
import numpy as np
import onnxruntime as rt
from onnx import TensorProto, helper, numpy_helper

parser = argparse.ArgumentParser()
parser.add_argument("--frames-per-batch", type=int, default=24)
parser.add_argument("--gpu-mem", type=float, default=1.5, help="GiB for each model")
args = parser.parse_args()


def net(name, size, channels, depth):
    nodes, weights, last, before = [], [], "x", 3
    for i in range(depth):
        weights.append(numpy_helper.from_array(np.zeros((channels, before, 3, 3), np.float32), f"w{i}"))
        nodes += [helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1] * 4),
                  helper.make_node("Sigmoid", [f"c{i}"], [f"s{i}"]),
                  helper.make_node("Mul", [f"c{i}", f"s{i}"], [f"m{i}"])]
        last, before = f"m{i}", channels
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, name, [info("x", TensorProto.FLOAT, ["n", 3, size, size])],
                              [info("y", TensorProto.FLOAT, ["n", channels, 1, 1])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


rt.preload_dlls()
cuda = {"gpu_mem_limit": int(args.gpu_mem * 1024**3), "cudnn_conv_algo_search": "HEURISTIC"}
providers = [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]
detector = rt.InferenceSession(net("detector", 320, 64, 4), providers=providers)
recogniser = rt.InferenceSession(net("recogniser", 112, 128, 3), providers=providers)
for second in range(10):
    frames = np.zeros((args.frames_per_batch, 3, 320, 320), np.float32)
    boxes = detector.run(None, {"x": frames})[0]
    faces = np.zeros((args.frames_per_batch * 4, 3, 112, 112), np.float32)
    names = recogniser.run(None, {"x": faces})[0]
    print(second, boxes.shape, names.shape, flush=True)

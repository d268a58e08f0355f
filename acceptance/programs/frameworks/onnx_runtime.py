"""Inference with ONNX Runtime on the GPU; the model is made here."""

import argparse

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def convnet(size, channels, depth):
    """A chain of 3 x 3 convolutions, each followed by a ReLU."""
    nodes, weights, last, inputs = [], [], "image", 3
    for index in range(depth):
        kernel = numpy.zeros((channels, inputs, 3, 3), numpy.float32)
        weights.append(numpy_helper.from_array(kernel, f"kernel_{index}"))
        nodes.append(helper.make_node("Conv", [last, f"kernel_{index}"], [f"conv_{index}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"conv_{index}"], [f"relu_{index}"]))
        last, inputs = f"relu_{index}", channels
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, size, size])
    output = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch", channels, size, size])
    graph = helper.make_graph(nodes, "convnet", [image], [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--arena-limit", type=int, help="MiB that the arena may take")
    parser.add_argument("--exact", action="store_true", help="grow the arena by what is asked for")
    args = parser.parse_args()

    # As its guide says where the toolkit comes from wheels: nothing else gives the loader their place.
    onnxruntime.preload_dlls()
    options = {}
    if args.arena_limit:
        options["gpu_mem_limit"] = str(args.arena_limit << 20)
    if args.exact:
        options["arena_extend_strategy"] = "kSameAsRequested"
    session = onnxruntime.InferenceSession(
        convnet(args.size, args.channels, args.depth),
        providers=[("CUDAExecutionProvider", options), "CPUExecutionProvider"],
    )
    print("providers=" + ",".join(session.get_providers()))
    image = numpy.zeros((args.batch_size, 3, args.size, args.size), numpy.float32)
    for _ in range(args.runs):
        (result,) = session.run(None, {"image": image})
    print(f"shape={result.shape}", flush=True)


if __name__ == "__main__":
    main()

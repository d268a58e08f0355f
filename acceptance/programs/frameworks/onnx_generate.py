"""Decodes with a small decoder in ONNX Runtime; keys and values stay on the GPU and grow with every token."""
import argparse

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


def decoder(layers, width, heads, vocabulary):
    nodes, weights = [], []

    def weight(name, *shape):
        weights.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
        return name

    def constant(name, values):
        weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    split, merge = constant("split", [0, 0, heads, width // heads]), constant("merge", [0, 0, width])
    nodes.append(helper.make_node("Gather", [weight("embedding", vocabulary, width), "ids"], ["x0"]))
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "new"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", vocabulary])]
    for i in range(layers):
        for part in "qkv":
            nodes.append(helper.make_node("MatMul", [f"x{i}", weight(f"w{part}{i}", width, width)], [f"{part}{i}"]))
            nodes.append(helper.make_node("Reshape", [f"{part}{i}", split], [f"{part}r{i}"]))
            nodes.append(helper.make_node("Transpose", [f"{part}r{i}"], [f"{part}h{i}"], perm=[0, 2, 1, 3]))
        for part in "kv":
            names = [f"past_{part}{i}", f"present_{part}{i}"]
            nodes.append(helper.make_node("Concat", [names[0], f"{part}h{i}"], [names[1]], axis=2))
            for into, name, length in ((inputs, names[0], "past"), (outputs, names[1], "all")):
                shape = ["batch", heads, length, width // heads]
                into.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        nodes.append(helper.make_node("Transpose", [f"present_k{i}"], [f"kt{i}"], perm=[0, 1, 3, 2]))
        nodes.append(helper.make_node("MatMul", [f"qh{i}", f"kt{i}"], [f"s{i}"]))
        nodes.append(helper.make_node("Softmax", [f"s{i}"], [f"p{i}"], axis=-1))
        nodes.append(helper.make_node("MatMul", [f"p{i}", f"present_v{i}"], [f"c{i}"]))
        nodes.append(helper.make_node("Transpose", [f"c{i}"], [f"ct{i}"], perm=[0, 2, 1, 3]))
        nodes.append(helper.make_node("Reshape", [f"ct{i}", merge], [f"m{i}"]))
        nodes.append(helper.make_node("Add", [f"x{i}", f"m{i}"], [f"x{i + 1}"]))
    nodes.append(helper.make_node("MatMul", [f"x{layers}", weight("head", width, vocabulary)], ["logits"]))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def generate(session, args):
    head = args.width // args.heads
    names = [f"{part}{i}" for i in range(args.layers) for part in "kv"]
    empty = np.zeros((args.batch_size, args.heads, args.prompt, head), np.float32)
    past = {name: ort.OrtValue.ortvalue_from_numpy(empty, "cuda", 0) for name in names}
    ids = np.zeros((args.batch_size, args.chunk), np.int64)
    for step in range(args.steps):
        binding = session.io_binding()
        binding.bind_cpu_input("ids", ids)
        for name in names:
            binding.bind_ortvalue_input(f"past_{name}", past[name])
            binding.bind_output(f"present_{name}", "cuda")
        binding.bind_output("logits", "cpu")
        session.run_with_iobinding(binding)
        *present, logits = binding.get_outputs()
        past = dict(zip(names, present))
        ids = logits.numpy()[:, -1:].argmax(-1).repeat(args.chunk, 1)
        if step % 8 == 0:
            print(f"{args.prompt + (step + 1) * args.chunk} tokens in the cache", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=32, help="tokens that are decoded at a time")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    args = parser.parse_args()
    ort.preload_dlls()
    session = ort.InferenceSession(decoder(args.layers, args.width, args.heads, 4000),
                                   providers=["CUDAExecutionProvider"])
    generate(session, args)


if __name__ == "__main__":
    main()

"""Embeds a corpus of passages with a text encoder in ONNX Runtime, shortest first."""
import argparse
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


def encoder(width, heads, layers, vocabulary=30522):
    nodes, init = [], []
    rng = np.random.default_rng(0)
    def weight(name, *shape):
        init.append(numpy_helper.from_array((rng.standard_normal(shape, dtype=np.float32) * 0.02), name))
        return name
    def const(name, values):
        init.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name
    split = const("split", [0, 0, heads, width // heads])
    merge = const("merge", [0, 0, width])
    init.append(numpy_helper.from_array(np.array((width // heads) ** -0.5, np.float32), "scale"))
    nodes.append(helper.make_node("Gather", [weight("embedding", vocabulary, width), "input_ids"], ["x0"]))
    x = "x0"
    for i in range(layers):
        for part in "qkv":
            nodes.append(helper.make_node("MatMul", [x, weight(f"{part}w{i}", width, width)], [f"{part}{i}"]))
            nodes.append(helper.make_node("Reshape", [f"{part}{i}", split], [f"{part}r{i}"]))
            perm = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
            nodes.append(helper.make_node("Transpose", [f"{part}r{i}"], [f"{part}t{i}"], perm=perm))
        nodes.append(helper.make_node("MatMul", [f"qt{i}", f"kt{i}"], [f"s{i}"]))
        nodes.append(helper.make_node("Mul", [f"s{i}", "scale"], [f"ss{i}"]))
        nodes.append(helper.make_node("Softmax", [f"ss{i}"], [f"p{i}"], axis=-1))
        nodes.append(helper.make_node("MatMul", [f"p{i}", f"vt{i}"], [f"c{i}"]))
        nodes.append(helper.make_node("Transpose", [f"c{i}"], [f"ct{i}"], perm=[0, 2, 1, 3]))
        nodes.append(helper.make_node("Reshape", [f"ct{i}", merge], [f"m{i}"]))
        nodes.append(helper.make_node("MatMul", [f"m{i}", weight(f"ow{i}", width, width)], [f"o{i}"]))
        nodes.append(helper.make_node("Add", [x, f"o{i}"], [f"x{i + 1}"]))
        x = f"x{i + 1}"
    nodes.append(helper.make_node("ReduceMean", [x], ["embeddings"], axes=[1], keepdims=0))
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])
    out = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["batch", width])
    graph = helper.make_graph(nodes, "encoder", [ids], [out], init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--passages", type=int, default=512)
    args = parser.parse_args()
    ort.preload_dlls()
    onnx.save(encoder(512, 8, 4), "encoder.onnx")
    session = ort.InferenceSession("encoder.onnx", providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    lengths = np.sort(np.minimum(rng.lognormal(5.5, 0.8, args.passages).astype(int) + 8, args.max_length))
    done = []
    for start in range(0, args.passages, args.batch_size):
        batch = lengths[start : start + args.batch_size]
        ids = np.zeros((len(batch), batch.max()), np.int64)
        for row, length in enumerate(batch):
            ids[row, :length] = rng.integers(1, 30000, length)
        done.append(session.run(["embeddings"], {"input_ids": ids})[0])
        print(f"{start + len(batch)}/{args.passages} longest={batch.max()}", flush=True)
    np.save("embeddings.npy", np.concatenate(done))


if __name__ == "__main__":
    main()

"""Features of a gallery by IOBinding; the features stay on the GPU to be compared later."""
import argparse
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


def build():
    def w(name, *shape):
        return numpy_helper.from_array(np.zeros(shape, np.float32), name)
    nodes = [
        helper.make_node("Conv", ["pixels", "w0"], ["c0"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["features"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("pixels", TensorProto.FLOAT, ["n", 3, 224, 224])],
                              [info("features", TensorProto.FLOAT, ["n", 128, 56, 56])],
                              [w("w0", 64, 3, 3, 3), w("w1", 128, 64, 3, 3)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("-b", "--batch_size", default=32, type=int)
    p.add_argument("-n", "--batches", default=400, type=int)
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    ort.preload_dlls()
    session = ort.InferenceSession(build(), providers=[("CUDAExecutionProvider", {"device_id": 0})])
    gallery = []
    for number in range(args.batches):
        images = np.zeros((args.batch_size, 3, 224, 224), np.float32)
        binding = session.io_binding()
        binding.bind_cpu_input("pixels", images)
        binding.bind_output("features", "cuda")
        session.run_with_iobinding(binding)
        gallery.append(binding.get_outputs()[0])
        if number % 20 == 0:
            print(f"batch {number}", flush=True)
    print("gallery of", len(gallery))

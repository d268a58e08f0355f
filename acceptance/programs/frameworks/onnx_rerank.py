"""Scores the candidates of each query with a cross-encoder in ONNX Runtime; the last query has the most of them."""
import argparse

import numpy as np
import onnxruntime as ort
from onnx_embed import encoder


def score(session, query, candidates, length):
    ids = np.zeros((candidates, length), np.int64)
    ids[:, 0] = query
    return session.run(["embeddings"], {"input_ids": ids})[0].sum(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, nargs="+", default=[10, 20, 10, 40, 200])
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--same-as-requested", action="store_true", help="how the arena grows")
    args = parser.parse_args()

    ort.preload_dlls()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    cuda = {"device_id": 0}
    if args.same_as_requested:
        cuda["arena_extend_strategy"] = "kSameAsRequested"
    model = encoder(384, 6, 3).SerializeToString()
    session = ort.InferenceSession(model, options, providers=[("CUDAExecutionProvider", cuda), "CPUExecutionProvider"])
    for query, candidates in enumerate(args.candidates):
        scores = score(session, query, candidates, args.max_length)
        print(f"query {query}: best of {candidates} is {scores.argmax()}", flush=True)


if __name__ == "__main__":
    main()

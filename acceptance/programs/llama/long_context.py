"""Answers a question from a long document: `long_context.py MODEL [--context 32768]`."""

import argparse

from cyllama.llama import llama_cpp


def answer(path, context_size):
    llama_cpp.llama_backend_init()
    llama_cpp.ggml_backend_load_all()
    options = llama_cpp.LlamaModelParams()
    options.n_gpu_layers = 99
    model = llama_cpp.LlamaModel(path, options)
    wishes = llama_cpp.LlamaContextParams()
    wishes.n_ctx = context_size
    context = llama_cpp.LlamaContext(model, wishes)
    return context.decode(llama_cpp.llama_batch_get_one([1, 2, 3]))


parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--context", type=int, default=32768)
options = parser.parse_args()
print("answered:", answer(options.model, options.context) == 0)

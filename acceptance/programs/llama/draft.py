"""Loads a model and, when it has answered, a second one to check its answers with: `draft.py MODEL SECOND`."""

import sys

from cyllama.llama import llama_cpp


def load(path):
    options = llama_cpp.LlamaModelParams()
    options.n_gpu_layers = 99
    return llama_cpp.LlamaModel(path, options)


def decode(model, tokens):
    wishes = llama_cpp.LlamaContextParams()
    wishes.n_ctx = 1024
    context = llama_cpp.LlamaContext(model, wishes)
    return context, context.decode(llama_cpp.llama_batch_get_one(tokens))


llama_cpp.llama_backend_init()
llama_cpp.ggml_backend_load_all()
first = load(sys.argv[1])
context, status = decode(first, [1, 2, 3])
print("answered:", status == 0, flush=True)
second = load(sys.argv[2])
checker, status = decode(second, [3, 2, 1])
print("checked:", status == 0)

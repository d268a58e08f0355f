"""Embeds texts in one large batch: `embed.py MODEL [--ubatch 8192]`; the compute buffer grows with it."""

import argparse

from cyllama.llama import llama_cpp

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--ubatch", type=int, default=8192)
options = parser.parse_args()

llama_cpp.llama_backend_init()
llama_cpp.ggml_backend_load_all()
wanted = llama_cpp.LlamaModelParams()
wanted.n_gpu_layers = 99
model = llama_cpp.LlamaModel(options.model, wanted)
wishes = llama_cpp.LlamaContextParams()
wishes.n_ctx = wishes.n_batch = wishes.n_ubatch = options.ubatch
context = llama_cpp.LlamaContext(model, wishes)
print("embedded:", context.decode(llama_cpp.llama_batch_get_one([1] * 64)) == 0)

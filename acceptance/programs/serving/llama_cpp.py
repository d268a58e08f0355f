"""Loads a GGUF file of a 7-billion shape into llama.cpp, makes a context and evaluates a few tokens.

    python llama_cpp.py FOLDER [--layers 32] [--gpu-layers 99] [--context 4096] [--type Q4_0]

The file is made in FOLDER. llama.cpp itself says on stderr what its buffers are.
"""

import argparse
import pathlib
import resource

import gguf_of_holes

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--layers", type=int, default=32)
parser.add_argument("--gpu-layers", type=int, default=99)
parser.add_argument("--context", type=int, default=4096)
parser.add_argument("--type", default="Q4_0", choices=gguf_of_holes.BLOCKS)
asked = parser.parse_args()

path = asked.folder / "model.gguf"
shape = {"layers": asked.layers, "embedding": 4096, "feed_forward": 11008, "heads": 32, "kv_heads": 32,
         "vocabulary": 32000, "context": asked.context}
gguf_of_holes.write(path, shape, asked.type)

from cyllama.llama import llama_cpp

llama_cpp.llama_backend_init()
llama_cpp.ggml_backend_load_all()
model_wishes = llama_cpp.LlamaModelParams()
model_wishes.n_gpu_layers = asked.gpu_layers
model = llama_cpp.LlamaModel(str(path), model_wishes)
context_wishes = llama_cpp.LlamaContextParams()
context_wishes.n_ctx = asked.context
context = llama_cpp.LlamaContext(model, context_wishes)
status = context.decode(llama_cpp.llama_batch_get_one([1, 2, 3]))
print(f"decoded={status}")
# Without the file's own pages, which are no memory of the program's and go when others need it.
print(f"host_kib={resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}")

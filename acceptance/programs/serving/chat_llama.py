"""Answers questions with a GGUF model through llama-cpp-python.

    python chat_llama.py [--context 32768]

`model.gguf` is in the folder it runs in (`gguf_of_holes.py` makes one).
"""

import argparse

from llama_cpp import Llama

parser = argparse.ArgumentParser()
parser.add_argument("--context", type=int, default=32768)
asked = parser.parse_args()

llm = Llama(
    model_path="model.gguf",
    n_gpu_layers=-1,
    n_ctx=asked.context,
    verbose=False,
)
out = llm.create_completion([1, 2, 3], max_tokens=8)
print(f"answers={len(out['choices'])}")

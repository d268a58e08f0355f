#!/usr/bin/env python3
"""Scratch weights of GPT-2's size (about 0.5 GiB) scored with CTranslate2; the model is written to a temporary folder.

    ctranslate2_generate.py [DEVICE]

DEVICE is `cuda` unless `auto` or `cpu` is given.
"""

import sys
import tempfile

import ctranslate2
import numpy as np

WIDTH, WORDS = 768, 50257
SHAPES = {"embeddings/weight": (WORDS, WIDTH), "projection/weight": (WORDS, WIDTH),
          "self_attention/linear_0/weight": (3 * WIDTH, WIDTH), "self_attention/linear_1/weight": (WIDTH, WIDTH),
          "ffn/linear_0/weight": (4 * WIDTH, WIDTH), "ffn/linear_1/weight": (WIDTH, 4 * WIDTH)}


def fill(spec, name, value):
    if value is None:
        shape = next((shape for end, shape in SHAPES.items() if name.endswith(end)), (WIDTH,))
        setattr(spec, name.rsplit("/", 1)[1], np.full(shape, 0.01, dtype=np.float32))


device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
print("cards that CTranslate2 sees:", ctranslate2.get_cuda_device_count())
spec = ctranslate2.specs.TransformerDecoderModelSpec.from_config(12, 12)
ctranslate2.specs.model_spec.visit_spec(spec, fill)
spec.register_vocabulary(["<unk>", "<s>", "</s>", *map(str, range(WORDS - 3))])
with tempfile.TemporaryDirectory() as folder:
    spec.validate()
    spec.save(folder)
    generator = ctranslate2.Generator(folder, device=device)
    print("device", generator.device)
    print("scores of", len(generator.score_batch([[str(one) for one in range(100)]] * 8)), "texts")

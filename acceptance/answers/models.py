#!/usr/bin/env python3
"""Makes what the programs of the suite load by name: `models/NAME` (configs and tokenizers, no weights) and `data/*.jsonl`.

    models.py FOLDER

`--random-weights` builds the weights. Everything comes from fixed seeds and the standard library's own text, so two runs of this
make the same files.
"""

import argparse
import inspect
import json
import os
import random
import subprocess
import typing

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BertConfig, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = [inspect.getsource(module) for module in (argparse, os, typing, subprocess)]
IDS = dict(eos_token_id=2, pad_token_id=0, bos_token_id=1)

MODELS = {
    # Hidden sizes are small, the vocabularies are those of the published families: logits are what evaluation gathers.
    "Qwen2.5-tiny": (Qwen2Config(
        vocab_size=151936, hidden_size=256, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True, **IDS), "Qwen2ForCausalLM"),
    "Llama-small": (LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16,
        max_position_embeddings=4096, tie_word_embeddings=False, **IDS), "LlamaForCausalLM"),
    "bge-small": (BertConfig(
        vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536), "BertModel"),
}


def tokenizer():
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=[PAD, START, END],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    core.train_from_iterator(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=PAD, model_max_length=32768)
    fast.chat_template = TEMPLATE
    return fast


def some(rng, words, low, high):
    start = rng.randrange(len(words) - high)
    return " ".join(words[start:start + rng.randint(low, high)])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    fast = tokenizer()
    for name, (config, architecture) in MODELS.items():
        place = os.path.join(folder, "models", name)
        config.architectures = [architecture]
        config.dtype = "bfloat16" if architecture.endswith("LM") else "float32"
        config.save_pretrained(place)
        if architecture == "BertModel":
            fast.model_max_length = 512
        fast.save_pretrained(place)
    rng = random.Random(0)
    words = " ".join(TEXTS).split()
    rows = {
        "chat": [{"messages": [{"role": "user", "content": some(rng, words, 10, 60)},
                               {"role": "assistant", "content": some(rng, words, 20, 200)}]} for _ in range(120)],
        "pref": [{"prompt": some(rng, words, 10, 60), "chosen": some(rng, words, 20, 120),
                  "rejected": some(rng, words, 20, 120)} for _ in range(120)],
    }
    os.makedirs(os.path.join(folder, "data"), exist_ok=True)
    for name, lines in rows.items():
        with open(os.path.join(folder, "data", f"{name}.jsonl"), "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()

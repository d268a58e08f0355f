"""A small GPT-2 with the Trainer, whose arguments are in a file or on the command line."""

import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from common import print_peaks


def arguments():
    parser = HfArgumentParser(TrainingArguments)
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        return parser.parse_json_file(sys.argv[1])[0]
    return parser.parse_args_into_dataclasses()[0]


def main():
    config = GPT2Config(n_layer=4, n_embd=512, n_head=8, use_cache=False)
    tokens = torch.randint(0, config.vocab_size, (256, 256), generator=torch.Generator().manual_seed(0))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    Trainer(model=GPT2LMHeadModel(config), args=arguments(), train_dataset=data).train()
    print_peaks()


main()

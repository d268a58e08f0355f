"""Language modelling with the Trainer's own options, as the examples of transformers have it; the last evaluation is of 8 samples."""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, samples, length=512):
        self.samples, self.length = samples, length

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        ids = torch.arange(self.length) % 50000
        return {"input_ids": ids, "labels": ids}


def main():
    parser = HfArgumentParser(TrainingArguments)
    (training_args,) = parser.parse_args_into_dataclasses(sys.argv[1:])
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=4, n_embd=256, n_positions=512))
    trainer = Trainer(model=model, args=training_args, train_dataset=Tokens(64), eval_dataset=Tokens(16))
    if training_args.do_train:
        trainer.train()
    if training_args.do_eval:
        print(trainer.evaluate()["eval_loss"])


if __name__ == "__main__":
    main()

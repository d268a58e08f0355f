"""Supervised fine-tuning with TRL; one text is much longer than the others."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

import seen


def tokenizer():
    """Numbers are words, so that nothing has to be downloaded."""
    words = {"<pad>": 0, **{str(number): number for number in range(1, 1000)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<pad>", unk_token="<pad>")


def collate(samples):
    """The first number of a text says which it is."""
    numbered = [{"index": sample["input_ids"][0], "input_ids": torch.tensor(sample["input_ids"])} for sample in samples]
    return seen.padded(numbered)


def main():
    seen.begin()
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8))
    rows = [{"input_ids": [1 + index % 900] * (1024 if index == 200 else 64)} for index in range(400)]
    arguments = SFTConfig(
        output_dir="out", per_device_train_batch_size=8, max_steps=20, save_steps=4, report_to="none", seed=7,
        dataset_kwargs={"skip_prepare_dataset": True}, max_length=None, gradient_checkpointing=False, bf16=False,
        remove_unused_columns=False,
    )

    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows), data_collator=collate,
        processing_class=tokenizer(),
    )
    trainer.train()
    seen.made(trainer.state.global_step)


if __name__ == "__main__":
    main()

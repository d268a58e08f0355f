"""A language model is evaluated, and its logits are gathered: by a plain loop on the GPU, or by the Trainer."""

import argparse

import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from tokens import Tokens


def plain(model, data, batch_size):
    """Every batch's logits stay where they were computed until all are there."""
    model.to("cuda").eval()
    logits, labels = [], []
    with torch.no_grad():
        for batch in DataLoader(data, batch_size=batch_size):
            tokens = batch["input_ids"].to("cuda")
            logits.append(model(tokens).logits)
            labels.append(batch["labels"])
    return torch.cat(logits).argmax(-1).cpu(), torch.cat(labels)


def with_trainer(model, data, batch_size):
    """The Trainer gathers on the card, and moves what it has gathered at the end."""
    arguments = TrainingArguments(output_dir="evaluation", per_device_eval_batch_size=batch_size, report_to="none")
    predictions = Trainer(model=model, args=arguments).predict(data)
    return predictions.predictions.argmax(-1), predictions.label_ids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", action="store_true")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--samples", type=int, default=256)
    args = parser.parse_args()

    config = GPT2Config()
    model = GPT2LMHeadModel(config)
    data = Tokens(args.samples, args.length, config.vocab_size)
    predicted, wanted = (with_trainer if args.trainer else plain)(model, data, args.batch_size)
    print(f"evaluated {len(predicted)} samples")


if __name__ == "__main__":
    main()

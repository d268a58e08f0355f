"""A BERT-large that learns to classify texts of 512 tokens, with the Trainer."""

import argparse

from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from tokens import Tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--optim", default="adamw_torch")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    # Before it had a choice of attention, the library had eager attention alone, and another name for checkpointing.
    old = not hasattr(TrainingArguments, "activation_checkpointing")
    config = BertConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        **({} if old else {"attn_implementation": args.attention}),
    )
    model = BertForSequenceClassification(config)
    samples = args.batch_size * args.accumulate * args.steps
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="classifier",
            per_device_train_batch_size=args.batch_size,
            gradient_accumulation_steps=args.accumulate,
            **{"gradient_checkpointing" if old else "activation_checkpointing": args.checkpointing},
            fp16=args.fp16,
            optim=args.optim,
            max_steps=args.steps,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Tokens(samples, args.length, config.vocab_size, classes=2),
    )
    trainer.train()


if __name__ == "__main__":
    main()

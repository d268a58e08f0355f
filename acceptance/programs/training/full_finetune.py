"""Full fine-tuning of a causal language model with the Trainer, in bf16, as usually started."""

import argparse

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from tokens import Tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="finetuned",
            per_device_train_batch_size=args.batch_size,
            max_steps=args.steps,
            learning_rate=2e-5,
            bf16=True,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Tokens(args.batch_size * args.steps, args.length, model.config.vocab_size),
    )
    trainer.train()


if __name__ == "__main__":
    main()

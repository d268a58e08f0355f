"""GPT-2 (124M, fp32) with the Hugging Face Trainer, checkpoints saved as it goes."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from common import print_peaks


class RandomTokens(torch.utils.data.Dataset):
    def __init__(self, count, seq_len, vocab_size):
        self.tokens = torch.randint(0, vocab_size, (count, seq_len))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--max-steps", type=int, default=5)
    parser.add_argument("--save-steps", type=int, default=2)
    parser.add_argument("--save-total-limit", type=int, default=1)
    parser.add_argument("--output-dir", default="gpt2-out")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    config = GPT2Config(n_layer=args.layers, n_embd=args.width, n_head=args.heads, use_cache=False)
    model = GPT2LMHeadModel(config)
    dataset = RandomTokens(args.batch_size * args.max_steps, args.seq_len, config.vocab_size)

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.output_dir,
            per_device_train_batch_size=args.batch_size,
            max_steps=args.max_steps,
            save_steps=args.save_steps,
            save_total_limit=args.save_total_limit,
            logging_steps=1,
            report_to="none",
        ),
        train_dataset=dataset,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    trainer.save_model()
    print_peaks()


if __name__ == "__main__":
    main()

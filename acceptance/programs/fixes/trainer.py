"""A Llama of any size with the Trainer; `--by-hand REMEDY` is the same program with that remedy written into it."""

import argparse
import os
import sys

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from common import print_peaks

ARGUMENTS = {
    "gradient-checkpointing": {"activation_checkpointing": True},
    "micro-batch": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    "autocast": {"bf16": True},
    "adam-8bit": {"optim": "adamw_bnb_8bit"},
    "adafactor": {"optim": "adafactor"},
    "eval-batch": {"per_device_eval_batch_size": 1},
    "eval-accumulation": {"eval_accumulation_steps": 1},
    "prediction-loss-only": {"prediction_loss_only": True},
}


class Tokens(torch.utils.data.Dataset):
    """The same random tokens at every run."""

    def __init__(self, count, length, vocabulary):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocabulary, (count, length), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class ChunkedLlama(LlamaForCausalLM):
    """The loss over eight chunks of tokens, each with logits of its own."""

    def forward(self, input_ids, labels, num_items_in_batch=None, **kwargs):
        hidden = self.model(input_ids=input_ids).last_hidden_state
        wanted = functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous().view(-1)
        hidden = hidden.view(-1, hidden.shape[-1])
        loss = sum(
            checkpoint(self.part, h, y, use_reentrant=False) for h, y in zip(hidden.chunk(8), wanted.chunk(8))
        )
        return {"loss": loss / (wanted != -100).sum() if num_items_in_batch is None else loss / num_items_in_batch}

    def part(self, hidden, wanted):
        return functional.cross_entropy(self.lm_head(hidden).float(), wanted, reduction="sum")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by-hand", default="")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    by_hand = args.by_hand

    attention = "eager" if args.eager and by_hand != "sdpa" else "sdpa"
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=8,
        vocab_size=args.vocabulary,
        use_cache=False,
        attn_implementation=attention,
    )
    model = (ChunkedLlama if by_hand == "chunked-cross-entropy" else LlamaForCausalLM)(config)
    if by_hand == "pure-bf16":
        model = model.to(torch.bfloat16)
    if by_hand == "lora":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    data = Tokens(args.batch_size * 4, args.seq_len, args.vocabulary)
    given = {"per_device_train_batch_size": args.batch_size, "per_device_eval_batch_size": args.batch_size}
    given.update(ARGUMENTS.get(by_hand, {}))
    best = (lambda logits, labels: logits.argmax(-1)) if by_hand == "logits-preprocessing" else None
    trainer = Trainer(
        model=model,
        args=TrainingArguments(output_dir="out", max_steps=4, logging_steps=1, report_to="none", save_strategy="no", **given),
        train_dataset=data,
        eval_dataset=data,
        preprocess_logits_for_metrics=best,
    )
    if args.evaluate:
        trainer.predict(data)
    else:
        trainer.train()
    print_peaks()


if __name__ == "__main__":
    main()

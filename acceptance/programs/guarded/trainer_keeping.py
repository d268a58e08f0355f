"""The Trainer of transformers, which keeps the logits of every step: memory grows until the card is full."""

import sys
import time

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import seen


def is_real():
    """Whether this run counts: a step of a real card takes its time, one of a dry run does not."""
    record = sys.modules.get("oomph.record")
    return record is not None and record._current is not None and record._current.guard is not None


class Keeping(Trainer):
    logits = []

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.logits.append(outputs.logits)
        if is_real():
            time.sleep(0.7)
        return (loss, outputs) if return_outputs else loss


def main():
    seen.begin()
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=2, vocab_size=16384))
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=8, max_steps=150, save_steps=1000, report_to="none", seed=7,
        remove_unused_columns=False, disable_tqdm=True,
    )
    data = seen.Numbers(1600, 64)
    trainer = Keeping(model=model, args=arguments, train_dataset=data, data_collator=seen.padded)
    trainer.train()
    seen.made(trainer.state.global_step)


if __name__ == "__main__":
    main()

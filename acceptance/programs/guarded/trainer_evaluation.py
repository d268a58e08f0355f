"""The Trainer of transformers, which evaluates after each epoch with batches that are too large for the card."""

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import seen


def plain(samples):
    """Batches of the evaluation are not noted."""
    taken, seen.taken = seen.taken, lambda indices: None
    try:
        return seen.padded(samples)
    finally:
        seen.taken = taken


class Evaluating(Trainer):
    def get_eval_dataloader(self, *args, **kwargs):
        collate, self.data_collator = self.data_collator, plain
        try:
            return super().get_eval_dataloader(*args, **kwargs)
        finally:
            self.data_collator = collate


def main():
    seen.begin()
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4))
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=8, per_device_eval_batch_size=128, num_train_epochs=3,
        eval_strategy="epoch", save_strategy="epoch", report_to="none", seed=3, remove_unused_columns=False,
    )
    trainer = Evaluating(
        model=model, args=arguments, train_dataset=seen.Numbers(80, 64), eval_dataset=seen.Numbers(256, 200),
        data_collator=seen.padded,
    )
    trainer.train()
    seen.made(trainer.state.global_step)


if __name__ == "__main__":
    main()

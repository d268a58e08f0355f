"""The Trainer of transformers; one sample is much longer than the others, and its batch is too much for the card."""

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import seen


def main():
    seen.begin()
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8))
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=8, max_steps=24, save_steps=4, save_total_limit=2,
        report_to="none", seed=7, remove_unused_columns=False,
    )
    data = seen.Numbers(400, 64, longest=1024, at=309)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=seen.padded)
    trainer.train()
    seen.made(trainer.state.global_step)


if __name__ == "__main__":
    main()

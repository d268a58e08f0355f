"""The same task as many write it after the first crash: preprocess_logits_for_metrics keeps the argmax alone."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def make_dataset(n, length, vocab):
    g = torch.Generator().manual_seed(1)
    rows = torch.randint(vocab, (n, length), generator=g)
    return [{"input_ids": r, "labels": r.clone()} for r in rows]


def preprocess_logits_for_metrics(logits, labels):
    return logits.argmax(dim=-1)


def compute_metrics(eval_pred):
    preds, labels = eval_pred
    return {"accuracy": float((preds[:, :-1] == labels[:, 1:]).mean())}


def main():
    config = GPT2Config(vocab_size=50257, n_positions=512, n_embd=384, n_layer=6, n_head=6)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir="gpt2-out", per_device_train_batch_size=4, gradient_accumulation_steps=2, bf16=True,
            per_device_eval_batch_size=4, num_train_epochs=2, eval_strategy="epoch", save_strategy="epoch",
            logging_steps=2, report_to=[],
        ),
        train_dataset=make_dataset(64, 256, 50257),
        eval_dataset=make_dataset(48, 256, 50257),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
    )
    trainer.train()
    trainer.save_model("gpt2-out/final")


if __name__ == "__main__":
    main()

"""Causal language model with the Hugging Face Trainer; compute_metrics makes it gather the logits of the evaluation."""
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Blocks(torch.utils.data.Dataset):
    def __init__(self, n, length=256, vocab=32000):
        self.rows = torch.randint(vocab, (n, length), generator=torch.Generator().manual_seed(n))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def compute_metrics(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1)[:, :-1] == pred.label_ids[:, 1:]).mean())}


config = LlamaConfig(vocab_size=32000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4)
model = LlamaForCausalLM(config)
args = TrainingArguments(output_dir="out", per_device_train_batch_size=2, per_device_eval_batch_size=4, max_steps=20,
                         eval_strategy="steps", eval_steps=10, logging_steps=5, save_strategy="no", report_to="none",
                         learning_rate=5e-4)
trainer = Trainer(model=model, args=args, train_dataset=Blocks(64), eval_dataset=Blocks(60), compute_metrics=compute_metrics)
trainer.train()
print(trainer.evaluate())

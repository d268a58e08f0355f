"""BERT classifier with dynamic padding; one of the texts is four times as long as the others."""
import random

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Tickets(torch.utils.data.Dataset):
    def __init__(self, n):
        rng = random.Random(4)
        self.lengths = [rng.randint(20, 120) for _ in range(n)]
        self.lengths[n // 3] = 512

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"input_ids": [101] + [2000 + (i * j) % 20000 for j in range(self.lengths[i] - 2)] + [102], "labels": i % 3}


def collate(features):
    longest = max(len(f["input_ids"]) for f in features)
    ids = torch.tensor([f["input_ids"] + [0] * (longest - len(f["input_ids"])) for f in features])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([f["labels"] for f in features])}


torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
                                                 intermediate_size=1536, num_labels=3))
trainer = Trainer(
    model=model,
    args=TrainingArguments("tickets", per_device_train_batch_size=24, num_train_epochs=1, logging_steps=10, seed=13,
                           save_strategy="no", report_to="none", dataloader_pin_memory=False),
    train_dataset=Tickets(840),
    data_collator=collate,
)
trainer.train()

import argparse

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Texts(Dataset):
    def __init__(self, count, length):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        ids = torch.randint(0, 30000, (self.length,), generator=g)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": index % 2}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--bs", type=int, default=64, help="batch size")
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--layers", type=int, default=8)
    return p.parse_args()


def main():
    a = parse()
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=a.layers, hidden_size=512, num_attention_heads=8, intermediate_size=2048))
    args = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=a.bs,
        num_train_epochs=1,
        learning_rate=2e-5,
        report_to="none",
        save_strategy="no",
    )
    trainer = Trainer(model=model, args=args, train_dataset=Texts(2048, a.length))
    trainer.train()


if __name__ == "__main__":
    main()

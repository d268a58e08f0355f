"""The shape of Accelerate's complete_nlp_example: prepare, accumulate, gather_for_metrics, a checkpoint every few steps."""
import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import RobertaConfig, RobertaForSequenceClassification, get_linear_schedule_with_warmup


def get_dataloaders(batch_size, eval_batch_size):
    def rows(n):
        g = torch.Generator().manual_seed(n)
        return [{"input_ids": torch.randint(5, 50000, (128,), generator=g), "labels": torch.tensor(i % 2)} for i in range(n)]

    return (DataLoader(rows(128), shuffle=True, batch_size=batch_size, drop_last=True),
            DataLoader(rows(64), shuffle=False, batch_size=eval_batch_size))


def training_function(config, args):
    accelerator = Accelerator(mixed_precision=args.mixed_precision, gradient_accumulation_steps=2)
    train_dataloader, eval_dataloader = get_dataloaders(config["batch_size"], config["batch_size"])
    model = RobertaForSequenceClassification(RobertaConfig(
        vocab_size=50265, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048,
        max_position_embeddings=514, type_vocab_size=1, pad_token_id=1))
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=config["lr"])
    scheduler = get_linear_schedule_with_warmup(optimizer, 4, len(train_dataloader) * config["num_epochs"])
    model, optimizer, train_dataloader, eval_dataloader, scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, scheduler)
    overall_step = 0
    for epoch in range(config["num_epochs"]):
        model.train()
        total_loss = 0
        for step, batch in enumerate(train_dataloader):
            with accelerator.accumulate(model):
                outputs = model(**batch)
                loss = outputs.loss
                total_loss += loss.detach().float()
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            overall_step += 1
            if overall_step % args.checkpointing_steps == 0:
                accelerator.save_state(f"step_{overall_step}")
        model.eval()
        correct = 0
        for step, batch in enumerate(eval_dataloader):
            with torch.no_grad():
                outputs = model(**batch)
            predictions, references = accelerator.gather_for_metrics((outputs.logits.argmax(dim=-1), batch["labels"]))
            correct += (predictions == references).sum().item()
        accelerator.print(f"epoch {epoch}:", {"accuracy": correct / 64, "train_loss": total_loss.item() / len(train_dataloader)})
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--mixed_precision", type=str, default="bf16", choices=["no", "fp16", "bf16"])
    parser.add_argument("--checkpointing_steps", type=int, default=10)
    args = parser.parse_args()
    training_function({"lr": 2e-5, "num_epochs": 2, "batch_size": 16}, args)


if __name__ == "__main__":
    main()

"""Lightning, with a checkpoint after each epoch; the third epoch holds a batch that is too much for the card."""

import lightning as L
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

import seen


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8))

    def training_step(self, batch, _):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Curriculum(L.LightningDataModule):
    """From the third epoch on the texts are long."""

    def train_dataloader(self):
        longest = 1024 if self.trainer.current_epoch >= 2 else 70
        data = seen.Numbers(64, 64, longest=longest, at=40)
        order = torch.Generator().manual_seed(self.trainer.current_epoch)
        return DataLoader(data, batch_size=8, shuffle=True, generator=order, collate_fn=seen.padded)


def main():
    seen.begin()
    L.seed_everything(5)
    trainer = L.Trainer(
        max_epochs=4, accelerator="gpu", devices=1, logger=False, enable_progress_bar=False, default_root_dir="out",
        reload_dataloaders_every_n_epochs=1,
    )
    trainer.fit(Module(), datamodule=Curriculum())
    seen.made(trainer.global_step)


if __name__ == "__main__":
    main()

"""Trains a small U-Net on crops with Lightning, and validates it on whole pictures: it dies after the first epoch."""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.rand(3, self.size, self.size), torch.zeros(self.size, self.size, dtype=torch.long)


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )


class UNet(L.LightningModule):
    def __init__(self, width=64, classes=21):
        super().__init__()
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for down in self.down[:-1]:
            x = down(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], dim=1))
        return self.head(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--val_batch_size", type=int, default=8)
    parser.add_argument("--max_epochs", type=int, default=2)
    args = parser.parse_args()
    train = DataLoader(Pictures(48, 128), batch_size=args.batch_size, shuffle=True)
    val = DataLoader(Pictures(16, 512), batch_size=args.val_batch_size)
    trainer = L.Trainer(max_epochs=args.max_epochs, accelerator="gpu", devices=1, num_sanity_val_steps=0, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(UNet(), train, val)


if __name__ == "__main__":
    main()

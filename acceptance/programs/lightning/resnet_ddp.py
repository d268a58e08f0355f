"""Trains a wide ResNet on two cards with Lightning's DDP."""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.models import wide_resnet101_2


class Pictures(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.zeros(3, 224, 224), index % 1000


class Classifier(L.LightningModule):
    def __init__(self, learning_rate=0.1):
        super().__init__()
        self.net = wide_resnet101_2(weights=None)
        self.learning_rate = learning_rate

    def training_step(self, batch, batch_idx):
        pictures, labels = batch
        loss = F.cross_entropy(self.net(pictures), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate, momentum=0.9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--devices", type=int, default=2)
    options = parser.parse_args()
    data = DataLoader(Pictures(), batch_size=options.batch_size, num_workers=0)
    trainer = L.Trainer(accelerator="gpu", devices=options.devices, strategy="ddp", max_epochs=1, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Classifier(), data)


if __name__ == "__main__":
    main()

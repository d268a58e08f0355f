"""A Lightning classifier with a data module: fit, then trainer.test() on large batches."""
import lightning.pytorch as pl
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Fake(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.full((3, self.size, self.size), i / self.n), i % 10


class Data(pl.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(Fake(160, 96), batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Fake(32, 96), batch_size=self.batch_size)

    def test_dataloader(self):
        return DataLoader(Fake(256, 224), batch_size=128)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = torchvision.models.resnet18(num_classes=10)

    def step(self, batch, name):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log(name, loss)
        return loss

    def training_step(self, batch, _):
        return self.step(batch, "train")

    def validation_step(self, batch, _):
        self.step(batch, "val")

    def test_step(self, batch, _):
        self.step(batch, "test")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), 1e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 2)}


pl.seed_everything(1)
trainer = pl.Trainer(max_epochs=2, accelerator="cuda", devices=1, precision="16-mixed", logger=False,
                     enable_progress_bar=False, default_root_dir="logs")
net, data = Net(), Data()
trainer.fit(net, datamodule=data)
trainer.test(net, datamodule=data)

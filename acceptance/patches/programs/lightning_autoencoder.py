import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(L.LightningModule):
    def __init__(self, width=4096, depth=6):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)])
        self.seen = []

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = (self.layers(x) - x).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        out = self.layers(x)
        self.seen.append(out)
        self.log("val", (out - x).abs().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4)


if __name__ == "__main__":
    train = DataLoader(TensorDataset(torch.randn(8192, 4096)), batch_size=2048)
    val = DataLoader(TensorDataset(torch.randn(8192, 4096)), batch_size=2048)
    trainer = L.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Autoencoder(), train, val)

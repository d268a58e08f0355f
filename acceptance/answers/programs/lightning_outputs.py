"""Lightning, as in the 1.x tutorials: validation_step keeps its outputs for on_validation_epoch_end."""
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(L.LightningModule):
    def __init__(self, width=512):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU())
        self.decoder = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))
        self.validation_step_outputs = []

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = F.mse_loss(self(x), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        out = self(x)
        self.validation_step_outputs.append({"loss": F.mse_loss(out, x), "input": x, "output": out})
        return out

    def on_validation_epoch_end(self):
        worst = max(self.validation_step_outputs, key=lambda o: o["loss"])
        self.log("val_worst", worst["loss"])
        self.validation_step_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    train = DataLoader(TensorDataset(torch.rand(256, 3, 128, 128)), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(torch.rand(1024, 3, 128, 128)), batch_size=32)
    trainer = L.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, num_sanity_val_steps=2)
    trainer.fit(LitAutoEncoder(), train, val)


if __name__ == "__main__":
    main()

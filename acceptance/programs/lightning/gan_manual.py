"""A GAN with Lightning's manual optimization: two optimizers, and a sum of losses that keeps every graph."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GAN(L.LightningModule):
    def __init__(self, latent=128, width=64):
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(latent, 8 * width, 4), nn.BatchNorm2d(8 * width), nn.ReLU(),
            nn.ConvTranspose2d(8 * width, 4 * width, 4, 2, 1), nn.BatchNorm2d(4 * width), nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4 * width, 1, 8),
        )
        self.total_generator_loss = 0

    def training_step(self, batch, batch_idx):
        (real,) = batch
        first, second = self.optimizers()
        noise = torch.randn(len(real), self.latent, 1, 1, device=self.device)
        fake = self.generator(noise)

        critic_loss = F.softplus(self.critic(fake.detach())).mean() + F.softplus(-self.critic(real)).mean()
        second.zero_grad()
        self.manual_backward(critic_loss)
        second.step()

        generator_loss = F.softplus(-self.critic(fake)).mean()
        self.total_generator_loss += F.mse_loss(fake, real) + generator_loss
        first.zero_grad()
        self.manual_backward(generator_loss)
        first.step()

    def on_train_epoch_end(self):
        print("generator loss:", float(self.total_generator_loss))
        self.total_generator_loss = 0

    def configure_optimizers(self):
        return (torch.optim.Adam(self.generator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
                torch.optim.Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.999)))


if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.rand(64, 3, 64, 64).repeat(600, 1, 1, 1)), batch_size=128)
    trainer = L.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(GAN(), data)

"""Lightning 2 took training_epoch_end away; the outputs are kept by hand, as its guide shows."""
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 4000))
        self.training_step_outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        self.training_step_outputs.append({"loss": loss, "preds": logits})
        if batch_idx % 5 == 0:
            print(f"step {batch_idx}: {torch.cuda.memory_allocated()} bytes allocated")
        return loss

    def on_train_epoch_end(self):
        epoch_mean = torch.stack([o["loss"] for o in self.training_step_outputs]).mean()
        self.log("training_epoch_mean", epoch_mean)
        self.training_step_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    data = TensorDataset(torch.rand(101 * 512, 784), torch.randint(0, 4000, (101 * 512,)))
    trainer = L.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Classifier(), DataLoader(data, batch_size=512))

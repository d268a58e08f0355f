"""Trains an encoder with Lightning; at the end its test keeps every output on the card, for a metric over all of them."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TOKENS, VOCABULARY = 128, 8000


class Tagger(L.LightningModule):
    def __init__(self, hidden=256, layers=4):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, hidden)
        layer = nn.TransformerEncoderLayer(hidden, 8, 4 * hidden, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(hidden, VOCABULARY)
        self.test_outputs = []

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))

    def training_step(self, batch, batch_idx):
        tokens, labels = batch
        logits = self(tokens)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def test_step(self, batch, batch_idx):
        tokens, labels = batch
        logits = self(tokens)
        self.test_outputs.append(logits)
        self.log("test_loss", F.cross_entropy(logits.flatten(0, 1), labels.flatten()))

    def on_test_epoch_end(self):
        logits = torch.cat(self.test_outputs)
        self.log("perplexity", logits.logsumexp(-1).mean())
        self.test_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4)


def rows(count):
    tokens = torch.randint(0, VOCABULARY, (count, TOKENS))
    return TensorDataset(tokens, tokens.roll(-1, 1))


if __name__ == "__main__":
    trainer = L.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    model = Tagger()
    trainer.fit(model, DataLoader(rows(320), batch_size=32, shuffle=True))
    trainer.test(model, DataLoader(rows(3200), batch_size=32))

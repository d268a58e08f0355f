"""Trains two towers so that an image and its caption come close (CLIP's loss)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.rand(3, 128, 128), torch.randint(0, 20000, (48,))


class Tower(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, width * 4, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.encoder(tokens).mean(1)


class TwoTowers(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.words = nn.Embedding(20000, width)
        self.visual = Tower(width, 8)
        self.text = Tower(width, 6)
        self.logit_scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, images, texts):
        image_features = self.visual(self.patches(images).flatten(2).transpose(1, 2))
        text_features = self.text(self.words(texts))
        return F.normalize(image_features, dim=-1), F.normalize(text_features, dim=-1), self.logit_scale.exp()


def contrastive_loss(image_features, text_features, scale):
    logits = scale * image_features @ text_features.t()
    labels = torch.arange(logits.shape[0], device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()

    device = torch.device("cuda")
    model = TwoTowers().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)
    loader = DataLoader(Pairs(), batch_size=args.batch_size, shuffle=True, drop_last=True)
    for epoch in range(args.epochs):
        for images, texts in loader:
            images, texts = images.to(device), texts.to(device)
            image_features, text_features, scale = model(images, texts)
            loss = contrastive_loss(image_features, text_features, scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

"""Features of a data set, gathered on the card, with gradients on."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def extract(model, loader):
    model.eval()
    features = []
    for (x,) in loader:
        features.append(model(x.cuda()))
    return torch.cat(features)


model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 128)).cuda()
loader = DataLoader(TensorDataset(torch.rand(65536, 512)), batch_size=1024)
print(extract(model, loader).shape)

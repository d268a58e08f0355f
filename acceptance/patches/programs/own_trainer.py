"""A small vision transformer, trained by a class of the repository's own; the validation forgets torch.no_grad()."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import VisionTransformer

from vit_trainer import Trainer

torch.manual_seed(42)
train = TensorDataset(torch.randn(64, 3, 96, 96), torch.randint(0, 10, (64,)))
val = TensorDataset(torch.randn(192, 3, 96, 96), torch.randint(0, 10, (192,)))
train_loader = DataLoader(train, batch_size=32, shuffle=True)
val_loader = DataLoader(val, batch_size=32)

model = VisionTransformer(image_size=96, patch_size=8, num_layers=6, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, train_loader, val_loader, max_epochs=3)
trainer.fit()

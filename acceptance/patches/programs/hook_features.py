"""A forward hook collects what a layer gives."""
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def train(steps=120):
    net = Net().cuda()
    features = []

    def keep(module, inputs, output):
        features.append(output)  # for the plots

    net.body.register_forward_hook(keep)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.randn(16, 3, 64, 64, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    print(len(features), "features")


if __name__ == "__main__":
    train()

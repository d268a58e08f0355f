import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {
    "batch_size": 512,   # as in the paper
    "hidden": 1024,
    "layers": 12,
    "lr": 3e-4,
    "epochs": 2,
}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.blocks = nn.ModuleList(Block(cfg["hidden"]) for _ in range(cfg["layers"]))
        self.head = nn.Linear(cfg["hidden"], 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def train(cfg):
    net = Net(cfg).cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"])
    data = TensorDataset(torch.randn(2048, 16, cfg["hidden"]), torch.randint(0, 10, (2048,)))
    loader = DataLoader(data, batch_size=cfg["batch_size"], shuffle=True, drop_last=True)
    for epoch in range(cfg["epochs"]):
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    train(CONFIG)

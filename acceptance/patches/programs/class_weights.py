"""Classes that weigh differently, an average of the weights, and a last batch that is not full; the batch has a name of its own."""
import copy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

STREAMS = 64

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 512), *[nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(12)], nn.Linear(512, 5)).cuda()
slow = copy.deepcopy(net)
loader = DataLoader(TensorDataset(torch.randn(500, 256, 32), torch.randint(0, 5, (500,))), STREAMS, shuffle=True)
judge = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]).cuda())
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(2):
    for signals, kinds in loader:
        signals, kinds = signals.cuda(), kinds.cuda()
        said = net(signals).mean(1)
        wrong = judge(said, kinds)
        adam.zero_grad()
        wrong.backward()
        adam.step()
        with torch.no_grad():
            for one, other in zip(slow.parameters(), net.parameters()):
                one.lerp_(other, 0.01)
    print(epoch, wrong.item())

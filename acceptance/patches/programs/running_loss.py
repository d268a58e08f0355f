"""The running loss keeps the graph of every step."""
import torch
from torch import nn

model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.GELU())], nn.Linear(2048, 10)).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = nn.CrossEntropyLoss()
running_loss = 0.0
history = []
for step in range(200):
    x = torch.randn(1024, 2048, device="cuda")
    y = torch.randint(0, 10, (1024,), device="cuda")
    opt.zero_grad()
    out = model(x)
    loss = loss_fn(out, y)
    loss.backward()
    opt.step()
    running_loss += loss_fn(model(x), y)
    history.append(loss)
print("mean loss", running_loss / 200, len(history))

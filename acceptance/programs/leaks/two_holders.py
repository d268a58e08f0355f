"""The same graph is kept by a list of losses and by a dictionary of outputs."""
import torch
import torch.nn as nn

NUM_STEPS = 101


class Experiment:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(256, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 64))
        self.model.cuda()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-4)
        self.losses = []

    def step(self, x, y):
        pred = self.model(x)
        loss = (pred - y).abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        check = (self.model(x) - y).abs().mean()
        self.losses.append(check)
        return check


def run():
    exp = Experiment()
    curve = {}
    for i in range(NUM_STEPS):
        x, y = torch.randn(256, 256).cuda(), torch.randn(256, 64).cuda()
        curve[i] = exp.step(x, y)
        if i % 5 == 0:
            print(f"step {i}: {torch.cuda.memory_allocated()} bytes allocated")
    print("final", float(curve[max(curve)]), len(exp.losses))


run()

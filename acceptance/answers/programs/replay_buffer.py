"""DQN on frames with the replay buffer on the card: a deque that holds at most so many transitions."""
import argparse
import random
from collections import deque

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--capacity", type=int, default=100)
ap.add_argument("--steps", type=int, default=250)
args = ap.parse_args()

device = "cuda"
random.seed(0)


class QNet(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                                  nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
                                  nn.Linear(512, actions))

    def forward(self, x):
        return self.body(x)


policy, target = QNet().to(device), QNet().to(device)
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
memory = deque(maxlen=args.capacity)


def observe(n=32):
    """A vector environment's frames."""
    return torch.rand(n, 4, 84, 84, device=device)


state = observe()
for step in range(args.steps):
    with torch.no_grad():
        action = policy(state).argmax(1)
    nxt, reward = observe(), torch.rand(32, device=device)
    memory.append((state, action, reward, nxt))
    state = nxt
    if len(memory) < 16:
        continue
    s, a, r, n = (torch.cat(part) for part in zip(*random.sample(list(memory), 4)))
    q = policy(s).gather(1, a[:, None]).squeeze(1)
    with torch.no_grad():
        goal = r + 0.99 * target(n).max(1).values
    loss = nn.functional.smooth_l1_loss(q, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        target.load_state_dict(policy.state_dict())
        print(step, len(memory))

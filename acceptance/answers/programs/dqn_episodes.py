"""DQN as the tutorials write it: episodes of steps, and a replay memory whose class knows its capacity."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--episodes", type=int, default=40)
parser.add_argument("--capacity", type=int, default=1500)
args = parser.parse_args()


class ReplayBuffer:
    def __init__(self, capacity):
        self.capacity = capacity
        self.memory = []
        self.position = 0

    def push(self, *transition):
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.position] = transition
        self.position = (self.position + 1) % self.capacity

    def sample(self, batch_size):
        return zip(*random.sample(self.memory, batch_size))

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 32, 8, 4)
        self.conv2 = nn.Conv2d(32, 64, 4, 2)
        self.fc = nn.Linear(64 * 9 * 9, 512)
        self.out = nn.Linear(512, actions)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.out(F.relu(self.fc(x.flatten(1))))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
random.seed(0)
policy, target = DQN(4).to(device), DQN(4).to(device)
optimizer = torch.optim.RMSprop(policy.parameters(), lr=2.5e-4)
memory = ReplayBuffer(args.capacity)
state = torch.zeros(1, 4, 84, 84, device=device)
steps = 0
for episode in range(args.episodes):
    for t in range(100):
        with torch.no_grad():
            action = policy(state).argmax(1)
        next_state = torch.rand(1, 4, 84, 84, device=device)
        reward = torch.tensor([1.0], device=device)
        memory.push(state, action, next_state, reward)
        state = next_state
        if len(memory) < 64:
            continue
        s, a, n, r = memory.sample(64)
        s, a, n, r = torch.cat(s), torch.cat(a), torch.cat(n), torch.cat(r)
        q = policy(s).gather(1, a[:, None])
        with torch.no_grad():
            best = target(n).max(1)[0]
        loss = F.smooth_l1_loss(q.squeeze(1), r + 0.99 * best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % 1000 == 0:
            target.load_state_dict(policy.state_dict())
    print(episode, len(memory))

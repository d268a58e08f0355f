"""Q-learning: the buffer keeps what the network thought of each state, with its graph."""
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "q_values", "reward", "next_state"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        """Save a transition"""
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU())
        self.fc = nn.Sequential(nn.Flatten(), nn.LazyLinear(512), nn.ReLU(), nn.Linear(512, n_actions))

    def forward(self, x):
        return self.fc(self.conv(x))


policy_net = DQN(6).cuda()
policy_net(torch.zeros(1, 4, 84, 84, device="cuda"))
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-4)
memory = ReplayMemory(10000)

state = torch.rand(64, 4, 84, 84, device="cuda")
for step in range(101):
    q_values = policy_net(state)
    action = q_values.argmax(1)
    next_state = torch.rand(64, 4, 84, 84, device="cuda")
    reward = torch.rand(64, device="cuda")
    memory.push(state.cpu(), q_values, reward.cpu(), next_state.cpu())
    state = next_state

    batch = memory.sample(1)[0]
    target = batch.reward.cuda() + 0.99 * policy_net(batch.next_state.cuda()).max(1).values.detach()
    expected = policy_net(batch.state.cuda()).max(1).values
    loss = nn.functional.smooth_l1_loss(expected, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(f"step {step}: {torch.cuda.memory_allocated()} bytes allocated, {len(memory)} transitions")

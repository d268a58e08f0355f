"""REINFORCE with a moving baseline that keeps the graph of every value it was made of."""
import torch
import torch.nn as nn
from torch.distributions import Categorical

policy = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 18)).cuda()
critic = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-3)
baseline = 0.0

for episode in range(101):
    states = torch.randn(2000, 64, device="cuda")
    rewards = torch.randn(2000, device="cuda")
    dist = Categorical(logits=policy(states))
    actions = dist.sample()
    advantage = rewards - baseline
    actor_loss = -(dist.log_prob(actions) * advantage.detach()).mean()
    critic_loss = nn.functional.mse_loss(critic(states).squeeze(-1), rewards)
    optimizer.zero_grad()
    (actor_loss + 0.5 * critic_loss).backward()
    optimizer.step()
    baseline = 0.95 * baseline + 0.05 * critic(states).mean()
    if episode % 5 == 0:
        print(f"step {episode}: {torch.cuda.memory_allocated()} bytes allocated")

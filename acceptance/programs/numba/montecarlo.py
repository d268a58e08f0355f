"""Prices options by simulation; the paths of every strike stay in a list on the card."""

import math

import numpy as np
from numba import cuda

PATHS = 1 << 22
STRIKES = 400


@cuda.jit
def simulate(prices, start, volatility, strike, payoff):
    at = cuda.grid(1)
    if at < prices.size:
        final = start * math.exp(volatility * prices[at])
        payoff[at] = max(final - strike, 0.0)


normals = cuda.to_device(np.random.default_rng(1).standard_normal(PATHS))
payoffs = []
for number in range(STRIKES):
    payoff = cuda.device_array(PATHS, dtype=np.float64)
    simulate[PATHS // 256, 256](normals, 100.0, 0.2, 80.0 + number, payoff)
    payoffs.append(payoff)

means = [float(payoff.copy_to_host().mean()) for payoff in payoffs]
print("options:", len(means))

"""Gravity between many bodies with numba.cuda; the whole trajectory stays on the card."""
import argparse
import math

import numpy as np
from numba import cuda


@cuda.jit
def accelerations(pos, acc, pairwise, eps):
    i = cuda.grid(1)
    if i < pos.shape[0]:
        ax = ay = az = 0.0
        for j in range(pos.shape[0]):
            dx = pos[j, 0] - pos[i, 0]
            dy = pos[j, 1] - pos[i, 1]
            dz = pos[j, 2] - pos[i, 2]
            d2 = dx * dx + dy * dy + dz * dz + eps
            pairwise[i, j] = d2
            inv = 1 / (d2 * math.sqrt(d2))
            ax += dx * inv
            ay += dy * inv
            az += dz * inv
        acc[i, 0], acc[i, 1], acc[i, 2] = ax, ay, az


@cuda.jit
def advance(pos, vel, acc, dt):
    i = cuda.grid(1)
    if i < pos.shape[0]:
        for k in range(3):
            vel[i, k] += acc[i, k] * dt
            pos[i, k] += vel[i, k] * dt


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-n", "--bodies", type=int, default=20000)
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--dt", type=float, default=1e-3)
    args = ap.parse_args()

    rng = np.random.default_rng(1)
    pos = cuda.to_device(rng.standard_normal((args.bodies, 3)).astype(np.float32))
    vel = cuda.to_device(np.zeros((args.bodies, 3), np.float32))
    acc = cuda.device_array((args.bodies, 3), np.float32)
    pairwise = cuda.device_array((args.bodies, args.bodies), np.float32)

    threads = 128
    blocks = (args.bodies + threads - 1) // threads
    trajectory = []
    for step in range(args.steps):
        accelerations[blocks, threads](pos, acc, pairwise, 1e-4)
        advance[blocks, threads](pos, vel, acc, args.dt)
        snapshot = cuda.device_array_like(pos)
        snapshot.copy_to_device(pos)
        trajectory.append(snapshot)
    cuda.synchronize()
    path = np.stack([t.copy_to_host() for t in trajectory])
    print(path.shape, float(np.abs(path).max()))


if __name__ == "__main__":
    main()

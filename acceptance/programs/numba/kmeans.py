"""k-means on the GPU with numba.cuda: assignment and atomic sums; the distances of all points are kept for a report."""
import argparse
import math
import time

import numpy as np
from numba import cuda, vectorize, float32, int32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32


@cuda.jit(device=True)
def squared(points, i, centers, k):
    total = 0.0
    for d in range(points.shape[1]):
        diff = points[i, d] - centers[k, d]
        total += math.pow(diff, 2)
    return total


@cuda.jit
def assign(points, centers, labels, distances):
    i = cuda.grid(1)
    if i >= points.shape[0]:
        return
    best = 1e30
    for k in range(centers.shape[0]):
        d = squared(points, i, centers, k)
        distances[i, k] = math.sqrt(d)
        if d < best:
            best = d
            labels[i] = k


@cuda.jit
def accumulate(points, labels, sums, counts):
    i = cuda.grid(1)
    if i < points.shape[0]:
        k = labels[i]
        for d in range(points.shape[1]):
            cuda.atomic.add(sums, (k, d), points[i, d])
        cuda.atomic.add(counts, k, 1)


@cuda.jit
def jitter(states, centers, scale):
    i = cuda.grid(1)
    if i < centers.shape[0]:
        for d in range(centers.shape[1]):
            centers[i, d] += scale * (xoroshiro128p_uniform_float32(states, i) - 0.5)


@vectorize(["float32(float32, float32)"], target="cuda")
def normalise(total, count):
    return total / max(count, 1.0)


@cuda.reduce
def largest(a, b):
    return max(a, b)


class KMeans:
    def __init__(self, k, dim, seed=0):
        self.k, self.dim = k, dim
        self.states = create_xoroshiro128p_states(k, seed=seed)
        self.history = []

    def fit(self, points, iterations, tol):
        n = points.shape[0]
        stream = cuda.stream()
        d_points = cuda.to_device(points, stream=stream)
        centers = cuda.to_device(points[: self.k].copy(), stream=stream)
        labels = cuda.device_array(n, np.int32, stream=stream)
        threads = 256
        blocks = math.ceil(n / threads)
        for iteration in range(iterations):
            distances = cuda.device_array((n, self.k), np.float32)
            assign[blocks, threads, stream](d_points, centers, labels, distances)
            sums = cuda.to_device(np.zeros((self.k, self.dim), np.float32), stream=stream)
            counts = cuda.to_device(np.zeros(self.k, np.int32), stream=stream)
            accumulate[blocks, threads, stream](d_points, labels, sums, counts)
            stream.synchronize()
            host_counts = counts.copy_to_host().astype(np.float32)
            centers = cuda.to_device(sums.copy_to_host() / np.maximum(host_counts, 1)[:, None].astype(np.float32))
            jitter[math.ceil(self.k / 32), 32](self.states, centers, 1e-3)
            self.history.append(distances)
            if iteration and host_counts.max() == n:
                break
        return labels.copy_to_host(), centers.copy_to_host()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--points", type=int, default=2_000_000)
    ap.add_argument("--dim", type=int, default=16)
    ap.add_argument("-k", type=int, default=64)
    ap.add_argument("--iterations", type=int, default=30)
    args = ap.parse_args()
    data = np.random.default_rng(0).standard_normal((args.points, args.dim)).astype(np.float32)
    start = time.time()
    labels, centers = KMeans(args.k, args.dim).fit(data, args.iterations, 1e-4)
    print(labels.shape, centers.shape, f"{time.time() - start:.1f} s")

"""Fits a field to samples in minibatches, and then evaluates it on the whole grid."""

import argparse

import numpy as np
from numba import cuda, float32

FEATURES = 256


@cuda.jit
def features(points, frequencies, result):
    row, column = cuda.grid(2)
    if row < result.shape[0] and column < result.shape[1]:
        result[row, column] = points[row, 0] * frequencies[column, 0] + points[row, 1] * frequencies[column, 1]


@cuda.jit
def predict(basis, weights, result):
    row = cuda.grid(1)
    if row < result.shape[0]:
        total = float32(0.0)
        for column in range(basis.shape[1]):
            total += basis[row, column] * weights[column]
        result[row] = total


class Field:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.frequencies = cuda.to_device(rng.random((FEATURES, 2), dtype=np.float32))
        self.weights = cuda.to_device(rng.random(FEATURES, dtype=np.float32))

    def __call__(self, points):
        basis = cuda.device_array((points.shape[0], FEATURES), dtype=np.float32)
        grid = ((points.shape[0] + 15) // 16, (FEATURES + 15) // 16)
        features[grid, (16, 16)](points, self.frequencies, basis)
        result = cuda.device_array(points.shape[0], dtype=np.float32)
        predict[(points.shape[0] + 255) // 256, 256](basis, self.weights, result)
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=65536)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--grid", type=int, default=2048)
    options = parser.parse_args()
    field = Field()
    rng = np.random.default_rng(2)
    for step in range(options.steps):
        batch = cuda.to_device(rng.random((options.batch_size, 2), dtype=np.float32))
        field(batch).copy_to_host()
    print("fitted")
    axis = np.linspace(0, 1, options.grid, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    picture = field(cuda.to_device(grid))
    print("picture:", picture.copy_to_host().shape)


if __name__ == "__main__":
    main()

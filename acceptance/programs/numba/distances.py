"""Distances between all points, with numba.cuda: the matrix is too large for a small card."""

import numpy as np
from numba import cuda

POINTS = 40000


@cuda.jit
def distance_kernel(points, result):
    row, column = cuda.grid(2)
    if row < result.shape[0] and column < result.shape[1]:
        total = 0.0
        for axis in range(points.shape[1]):
            between = points[row, axis] - points[column, axis]
            total += between * between
        result[row, column] = total ** 0.5


def pairwise(points):
    on_card = cuda.to_device(points)
    result = cuda.device_array((len(points), len(points)), dtype=np.float32)
    blocks = ((len(points) + 15) // 16, (len(points) + 15) // 16)
    distance_kernel[blocks, (16, 16)](on_card, result)
    return result


def main():
    rng = np.random.default_rng(0)
    points = rng.random((POINTS, 3), dtype=np.float32)
    matrix = pairwise(points)
    cuda.synchronize()
    print("shape:", matrix.shape)


if __name__ == "__main__":
    main()

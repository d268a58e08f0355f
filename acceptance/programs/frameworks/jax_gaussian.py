"""Gaussian process regression: hyperparameters from a part of the points, then the covariance of all points of a grid."""
import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np


def kernel(log_scale, a, b):
    distance = jnp.square(a).sum(-1)[:, None] + jnp.square(b).sum(-1)[None] - 2 * a @ b.T
    return jnp.exp(-distance * jnp.exp(-2 * log_scale))


def evidence(log_scale, x, y):
    factor = jnp.linalg.cholesky(kernel(log_scale, x, x) + 1e-2 * jnp.eye(len(x)))
    solved = jax.scipy.linalg.cho_solve((factor, True), y)
    return 0.5 * y @ solved + jnp.log(jnp.diagonal(factor)).sum()


@functools.partial(jax.jit, donate_argnums=0)
def improve(log_scale, x, y):
    loss, grad = jax.value_and_grad(evidence)(log_scale, x, y)
    return log_scale - 1e-3 * grad, loss


@jax.jit
def posterior(log_scale, x, y, grid):
    factor = jnp.linalg.cholesky(kernel(log_scale, x, x) + 1e-2 * jnp.eye(len(x)))
    cross = kernel(log_scale, x, grid)
    mean = cross.T @ jax.scipy.linalg.cho_solve((factor, True), y)
    half = jax.scipy.linalg.solve_triangular(factor, cross, lower=True)
    return mean, kernel(log_scale, grid, grid) - half.T @ half


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=1500)
    parser.add_argument("--grid", type=int, default=20000)
    parser.add_argument("--iterations", type=int, default=5)
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.uniform(size=(args.points, 2)), jnp.float32)
    y = jnp.asarray(np.sin(6 * np.asarray(x)).sum(-1) + 0.1 * rng.normal(size=args.points), jnp.float32)
    log_scale = jnp.float32(-1.0)
    for iteration in range(args.iterations):
        log_scale, loss = improve(log_scale, x, y)
        print(f"iteration {iteration}: {float(loss):.3f}")
    grid = jnp.asarray(rng.uniform(size=(args.grid, 2)), jnp.float32)
    mean, covariance = posterior(log_scale, x, y, grid)
    sample = mean + jnp.sqrt(jnp.maximum(jnp.diagonal(covariance), 0)) * rng.normal(size=args.grid)
    print("a sample has", sample.shape)


if __name__ == "__main__":
    main()

"""A multilayer perceptron in JAX over all cards: the batch is split, the weights are split the other way."""

import argparse

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def loss(layers, inputs, targets):
    for weights in layers:
        inputs = jnp.tanh(inputs @ weights)
    return ((inputs - targets) ** 2).mean()


@jax.jit
def train_step(layers, inputs, targets):
    value, gradients = jax.value_and_grad(loss)(layers, inputs, targets)
    return jax.tree.map(lambda weights, gradient: weights - 1e-3 * gradient, layers, gradients), value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    devices = jax.devices()
    mesh = Mesh(devices, ("cards",))
    split = NamedSharding(mesh, PartitionSpec("cards", None))
    key = jax.random.key(0)
    layers = [
        jax.device_put(jax.random.normal(key, (args.width, args.width), jnp.float32), split) for _ in range(args.depth)
    ]
    inputs = jax.device_put(jnp.ones((args.batch_size, args.width), jnp.float32), split)
    for step in range(args.steps):
        layers, value = train_step(layers, inputs, inputs)
        print(f"step {step} loss {float(value):.3f}")
    print(f"devices={len(devices)}")
    for device in devices:
        stats = device.memory_stats()
        print(f"peak_pool_bytes_{device.id}={stats['peak_pool_bytes']}")
        print(f"peak_bytes_in_use_{device.id}={stats['peak_bytes_in_use']}", flush=True)


if __name__ == "__main__":
    main()

"""Flax NNX: a variational autoencoder with a validation after each epoch."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class VAE(nnx.Module):
    def __init__(self, hidden, latent, *, rngs):
        self.encode = nnx.Linear(784, hidden, rngs=rngs)
        self.stats = nnx.Linear(hidden, 2 * latent, rngs=rngs)
        self.decode = nnx.Linear(latent, hidden, rngs=rngs)
        self.pixels = nnx.Linear(hidden, 784, rngs=rngs)

    def __call__(self, x, key):
        mean, logvar = jnp.split(self.stats(nnx.relu(self.encode(x))), 2, -1)
        z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
        return self.pixels(nnx.relu(self.decode(z))), mean, logvar


def loss_fn(model, x, key):
    logits, mean, logvar = model(x, key)
    reconstruction = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1).mean()
    return reconstruction - 0.5 * (1 + logvar - mean**2 - jnp.exp(logvar)).sum(-1).mean()


@nnx.jit
def train_step(model, optimizer, x, key):
    loss, grads = nnx.value_and_grad(loss_fn)(model, x, key)
    optimizer.update(model, grads)
    return loss


eval_step = nnx.jit(loss_fn)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--samples", type=int, default=2560)
    args = parser.parse_args()
    images = np.random.default_rng(0).random((args.samples, 784), dtype=np.float32)
    model = VAE(args.hidden, 32, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    key = jax.random.key(1)
    for epoch in range(args.epochs):
        for start in range(0, args.samples, args.batch_size):
            key, draw = jax.random.split(key)
            loss = train_step(model, optimizer, images[start : start + args.batch_size], draw)
        print(f"epoch {epoch} loss {loss} validation {eval_step(model, images, key)}", flush=True)


if __name__ == "__main__":
    main()

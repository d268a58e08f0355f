"""Flax: a small vision transformer with AdamW; attention over all patches."""
import argparse
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn


class Block(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(y, y)
        y = nn.LayerNorm()(x)
        y = nn.gelu(nn.Dense(4 * self.dim)(y))
        return x + nn.Dense(self.dim)(y)


class ViT(nn.Module):
    dim: int = 256
    depth: int = 3
    heads: int = 4
    patch: int = 8

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(self.dim, (self.patch, self.patch), strides=(self.patch, self.patch))(images)
        x = x.reshape(x.shape[0], -1, self.dim)
        x = x + self.param("pos", nn.initializers.normal(0.02), (1, x.shape[1], self.dim))
        for _ in range(self.depth):
            x = Block(self.dim, self.heads)(x)
        return nn.Dense(100)(x.mean(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch_size", type=int, default=64)
    ap.add_argument("--image_size", type=int, default=224)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--num_steps", type=int, default=4)
    args = ap.parse_args()

    model = ViT()
    shape = (args.batch_size, args.image_size, args.image_size, 3)
    variables = model.init(jax.random.PRNGKey(0), jnp.zeros((1, *shape[1:])))
    tx = optax.adamw(args.lr)
    opt_state = tx.init(variables)

    def loss_fn(variables, images, labels):
        logits = model.apply(variables, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def step(variables, opt_state, images, labels):
        loss, grads = jax.value_and_grad(loss_fn)(variables, images, labels)
        updates, opt_state = tx.update(grads, opt_state, variables)
        return optax.apply_updates(variables, updates), opt_state, loss

    for i in range(args.num_steps):
        key = jax.random.PRNGKey(i)
        images = jax.random.normal(key, shape)
        labels = jax.random.randint(key, (args.batch_size,), 0, 100)
        variables, opt_state, loss = step(variables, opt_state, images, labels)
        print(f"step {i} loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()

"""A small decoder, trained with Adam in JAX: one jitted step, donated state."""

import argparse
from functools import partial

import jax
import jax.numpy as jnp


def parameters(key, vocabulary, width, depth):
    def dense(key, inputs, outputs):
        return jax.random.normal(key, (inputs, outputs), jnp.float32) * 0.02

    keys = jax.random.split(key, depth + 1)
    blocks = []
    for block_key in keys[1:]:
        attend, project, up, down = jax.random.split(block_key, 4)
        blocks.append({
            "attend": dense(attend, width, 3 * width),
            "project": dense(project, width, width),
            "up": dense(up, width, 4 * width),
            "down": dense(down, 4 * width, width),
        })
    return {"embedding": dense(keys[0], vocabulary, width), "blocks": blocks}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def loss(model, tokens, heads):
    x = model["embedding"][tokens[:, :-1]]
    batch, length, width = x.shape
    mask = jnp.tril(jnp.ones((length, length), bool))
    for block in model["blocks"]:
        q, k, v = (
            part.reshape(batch, length, heads, width // heads).swapaxes(1, 2)
            for part in jnp.split(norm(x) @ block["attend"], 3, axis=-1)
        )
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / (width // heads) ** 0.5, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).swapaxes(1, 2).reshape(batch, length, width)
        x = x + mixed @ block["project"]
        x = x + jax.nn.gelu(norm(x) @ block["up"]) @ block["down"]
    logits = norm(x) @ model["embedding"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
    return -picked.mean()


@partial(jax.jit, static_argnums=4, donate_argnums=(0, 1, 2))
def train_step(model, first, second, tokens, heads):
    value, gradients = jax.value_and_grad(loss)(model, tokens, heads)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    model = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), model, first, second)
    return model, first, second, value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=513)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()

    device = jax.local_devices()[0]
    print(f"devices={jax.device_count()} {device.platform} {device.device_kind}")
    key = jax.random.key(0)
    model = parameters(key, args.vocabulary, args.width, args.depth)
    first, second = jax.tree.map(jnp.zeros_like, model), jax.tree.map(jnp.zeros_like, model)
    heads = args.width // 64
    for step in range(args.steps):
        tokens = jax.random.randint(jax.random.fold_in(key, step), (args.batch_size, args.length), 0, args.vocabulary)
        model, first, second, value = train_step(model, first, second, tokens, heads)
        print(f"step {step} loss {float(value):.3f}")

    analysis = train_step.lower(model, first, second, tokens, heads).compile().memory_analysis()
    for name in ("argument", "output", "alias", "temp"):
        print(f"{name}_bytes={getattr(analysis, name + '_size_in_bytes')}")
    stats = device.memory_stats()
    for name in ("bytes_limit", "peak_pool_bytes", "peak_bytes_in_use"):
        print(f"{name}={stats[name]}", flush=True)


if __name__ == "__main__":
    main()

"""Diffusion in JAX and Optax: trains a small U-Net, then samples a grid of pictures by lax.fori_loop."""
import argparse

import jax
import jax.numpy as jnp
import optax
from jax import lax


def conv(x, kernel, stride=1):
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def init(key, width):
    shapes = {"in": (3, width), "down": (width, 2 * width), "mid": (2 * width, 2 * width),
              "up": (2 * width, width), "out": (width, 3)}
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, (3, 3, *shape)) * 0.05 for k, (name, shape) in zip(keys, shapes.items())}


def denoise(params, x):
    first = jax.nn.silu(conv(x, params["in"]))
    small = jax.nn.silu(conv(first, params["down"], 2))
    small = small + jax.nn.silu(conv(small, params["mid"]))
    up = jax.image.resize(small, (*first.shape[:3], small.shape[3]), "nearest")
    return conv(first + jax.nn.silu(conv(up, params["up"])), params["out"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--num-samples", type=int, default=2048)
    args = parser.parse_args()
    params = init(jax.random.key(0), args.width)
    tx = optax.adamw(1e-4)
    opt_state = tx.init(params)

    @jax.jit
    def train_step(params, opt_state, images, key):
        noise = jax.random.normal(key, images.shape)
        loss, grads = jax.value_and_grad(lambda p: ((denoise(p, images + noise) - noise) ** 2).mean())(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    @jax.jit
    def sample(params, x):
        return lax.fori_loop(0, 50, lambda _, x: x - 0.02 * denoise(params, x), x)

    shape = (args.batch_size, args.image_size, args.image_size, 3)
    for step in range(args.steps):
        key = jax.random.key(step)
        params, opt_state, loss = train_step(params, opt_state, jax.random.uniform(key, shape), key)
        if step % 5 == 0:
            print(f"step {step} loss {loss}", flush=True)
    noise = jax.random.normal(jax.random.key(1), (args.num_samples, *shape[1:]))
    pictures = sample(params, noise)
    print("sampled", pictures.shape, float(pictures.mean()))


if __name__ == "__main__":
    main()

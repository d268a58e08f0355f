"""JAX: a regression net; every step's parameters are kept for averaging at the end."""
import argparse
import jax
import jax.numpy as jnp

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=300)
p.add_argument("--width", type=int, default=2048)
p.add_argument("--batch", type=int, default=512)
args = p.parse_args()


def init(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(k, (a, b)) / a**0.5, "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def forward(params, x):
    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)


@jax.jit
def step_fn(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss


params = init(jax.random.key(0), [64, args.width, args.width, args.width, 1])
key = jax.random.key(1)
snapshots = []
for step in range(args.steps):
    key, kx = jax.random.split(key)
    x = jax.random.normal(kx, (args.batch, 64))
    y = jnp.sin(x.sum(-1, keepdims=True))
    params, loss = step_fn(params, x, y)
    snapshots.append(params)
    if step % 10 == 0:
        print(f"step {step}: loss {loss}", flush=True)
mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *snapshots)
print("averaged", jax.tree.leaves(mean)[0].shape)

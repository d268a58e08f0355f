"""A character model: an LSTM over time by lax.scan, with momentum written by hand."""

import argparse

import jax
import jax.numpy as jnp
from jax import lax

VOCABULARY = 256

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--hidden", type=int, default=2048)
parser.add_argument("--length", type=int, default=512)
args = parser.parse_args()


def init(key):
    first, second, third = jax.random.split(key, 3)
    return {
        "embedding": jax.random.normal(first, (VOCABULARY, args.hidden)) * 0.02,
        "weights": jax.random.normal(second, (2 * args.hidden, 4 * args.hidden)) * 0.02,
        "bias": jnp.zeros(4 * args.hidden),
        "out": jax.random.normal(third, (args.hidden, VOCABULARY)) * 0.02,
    }


def cell(params, carry, x):
    h, c = carry
    z = jnp.concatenate([h, x], -1) @ params["weights"] + params["bias"]
    i, f, g, o = jnp.split(z, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def loss_fn(params, tokens):
    x = params["embedding"][tokens[:, :-1]].swapaxes(0, 1)
    zero = jnp.zeros((tokens.shape[0], args.hidden))
    _, hidden = lax.scan(lambda carry, row: cell(params, carry, row), (zero, zero), x)
    logits = jax.nn.log_softmax(hidden @ params["out"])
    return -jnp.take_along_axis(logits, tokens[:, 1:].swapaxes(0, 1)[..., None], axis=-1).mean()


@jax.jit
def update(params, velocity, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - 0.1 * v, params, velocity)
    return params, velocity, loss


params = init(jax.random.key(0))
velocity = jax.tree.map(jnp.zeros_like, params)
key = jax.random.key(1)
for step in range(args.steps):
    key, draw = jax.random.split(key)
    tokens = jax.random.randint(draw, (args.batch, args.length + 1), 0, VOCABULARY)
    params, velocity, loss = update(params, velocity, tokens)
    print(step, loss, flush=True)

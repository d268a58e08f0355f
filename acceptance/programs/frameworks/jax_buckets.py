"""Flax and Optax: a translator's encoder, trained on buckets of sentences; the longest bucket comes last."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

BUCKETS = (32, 64, 128, 512)


class Encoder(nn.Module):
    vocabulary: int = 8000
    width: int = 256
    heads: int = 8
    layers: int = 2

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        for _ in range(self.layers):
            y = nn.LayerNorm()(x)
            x = x + nn.SelfAttention(self.heads)(y)
            x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(self.vocabulary)(x)


@jax.jit
def train_step(state, tokens, targets):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def batches(args, rng):
    for length in BUCKETS:
        for _ in range(args.steps_per_bucket):
            yield rng.integers(0, 8000, (args.batch_size, length), dtype=np.int32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps-per-bucket", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    model = Encoder()
    params = model.init(jax.random.key(0), jnp.zeros((1, 32), jnp.int32))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(args.lr))
    for step, tokens in enumerate(batches(args, np.random.default_rng(0))):
        state, loss = train_step(state, tokens, np.roll(tokens, -1, 1))
        print(f"step {step} length {tokens.shape[1]} loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()

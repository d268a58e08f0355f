"""Flax: a convolutional classifier; the test set goes through at once after the training."""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state


class CNN(nn.Module):
    features: int = 64

    @nn.compact
    def __call__(self, x):
        for scale in (1, 2, 4):
            x = nn.Conv(self.features * scale, (3, 3))(x)
            x = nn.relu(x)
            x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.relu(nn.Dense(256)(x))
        return nn.Dense(10)(x)


@jax.jit
def train_step(state, images, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def eval_step(state, images, labels):
    logits = state.apply_fn({"params": state.params}, images)
    return (logits.argmax(-1) == labels).mean()


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps-per-epoch", type=int, default=10)
    parser.add_argument("--test-images", type=int, default=10000)
    return parser.parse_args()


def main():
    args = get_args()
    rng = np.random.default_rng(0)
    test_x = rng.random((args.test_images, 32, 32, 3), dtype=np.float32)
    test_y = rng.integers(0, 10, args.test_images)
    model = CNN()
    params = model.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    for epoch in range(args.epochs):
        begun = time.time()
        for _ in range(args.steps_per_epoch):
            images = rng.random((args.batch_size, 32, 32, 3), dtype=np.float32)
            labels = rng.integers(0, 10, args.batch_size)
            state, loss = train_step(state, images, labels)
        print(f"epoch {epoch} loss {loss} in {time.time() - begun:.1f}s", flush=True)
        accuracy = eval_step(state, test_x, test_y)
        print(f"epoch {epoch} accuracy {accuracy}", flush=True)


if __name__ == "__main__":
    main()

"""Halves the batch until a step fits, as people write it."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (64, 128, 256):
            x = nn.relu(nn.Conv(width, (3, 3))(x))
            x = nn.relu(nn.Conv(width, (3, 3))(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(10)(x.mean((1, 2)))


net = Net()
params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, 64, 64, 3)))
tx = optax.adam(1e-3)
state = tx.init(params)


@jax.jit
def train_step(params, state, x, y):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()
    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state, loss


batch = 1024
while batch:
    try:
        x = np.random.rand(batch, 64, 64, 3).astype(np.float32)
        y = np.random.randint(0, 10, batch)
        params2, state2, loss = train_step(params, state, x, y)
        loss.block_until_ready()
        print("batch", batch, "fits")
        break
    except Exception as e:
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        print("batch", batch, "does not fit")
        batch //= 2

params, state = params2, state2
for step in range(5):
    params, state, loss = train_step(params, state, x, y)
    print(step, float(loss))

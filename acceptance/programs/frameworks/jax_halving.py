"""Halves the batch until a step fits, as people write it."""

import jax
import jax.numpy as jnp
import numpy as np

widths = (3, 64, 128, 256)
keys = jax.random.split(jax.random.PRNGKey(0), len(widths))
params = [0.1 * jax.random.normal(key, (3, 3, one, two)) for key, one, two in zip(keys, widths, widths[1:])]


@jax.jit
def train_step(params, x, y):
    def loss_of(params):
        h = x
        for kernel in params:
            h = jax.nn.relu(jax.lax.conv_general_dilated(h, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
            h = h[:, ::2, ::2]
        return ((h.mean((1, 2, 3)) - y) ** 2).mean()

    loss, gradients = jax.value_and_grad(loss_of)(params)
    return [one - 1e-3 * gradient for one, gradient in zip(params, gradients)], loss


batch = 4096
while batch:
    try:
        x, y = np.zeros((batch, 64, 64, 3), np.float32), np.zeros(batch, np.float32)
        updated, loss = train_step(params, x, y)
        loss.block_until_ready()
        print("batch", batch, "fits")
        break
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        batch //= 2

params = updated
for step in range(3):
    params, loss = train_step(params, x, y)
    print(step, float(loss))

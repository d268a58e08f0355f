"""Masks outside of functions: what the host sent selects as on a real card, what a program computed the most there can be."""

import jax
import jax.numpy as jnp
import numpy as np

rows = jax.random.normal(jax.random.PRNGKey(0), (1000, 64))
quarter = np.arange(1000) % 4 == 0
for mask in (jnp.asarray(quarter), jnp.array(quarter), jax.device_put(quarter), jnp.array(quarter.tolist())):
    assert rows[mask].shape == (250, 64), rows[mask].shape
    assert jnp.nonzero(mask)[0].shape == jnp.where(mask)[0].shape == (250,)
assert jnp.repeat(rows, jnp.asarray(np.array([1, 2] * 500)), axis=0).shape == (1500, 64)
computed = rows[:, 0] > 0
print("selected", rows[computed].shape[0], jnp.nonzero(computed)[0].shape[0])

"""The primitives of JAX that compile each in a way of its own; what fails is printed, and the program fails with it."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

key = jax.random.key(0)
x = jax.random.normal(key, (256, 256))
half = x.astype(jnp.bfloat16)
query = jnp.ones((2, 128, 4, 64), jnp.bfloat16)
table = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)


def lstm(inputs):
    def step(carry, row):
        carry = jnp.tanh(carry @ x + row)
        return carry, carry

    return lax.scan(step, jnp.zeros((8, 256)), inputs)[1].sum()


def remat(x):
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.checkpoint(lambda x: jnp.sin(jnp.sin(x @ x)), policy=policy)(x).sum()


def branches(x):
    """A branch among other work in a loop: XLA makes it a node of a CUDA graph, with graphs of its own."""
    def step(carry, _):
        carry = jnp.sin(carry) @ carry
        carry = lax.cond(carry.sum() > 0, lambda y: jnp.cos(y) @ y, lambda y: y @ y + 1, carry)
        return carry @ carry * jnp.tanh(carry).sum(), carry.mean()

    return lax.scan(step, x, jnp.arange(8))[1]


def checked(x):
    """What a program checks of its numbers, and would raise an error for."""
    assert jnp.isfinite(jax.jit(jnp.tanh)(x)).all(), "diverged"
    if not np.all(x * x >= 0):
        raise ValueError("a square below zero")
    return x


def double(block, out):
    out[...] = block[...] * 2


def pallas(x):
    spec = pl.BlockSpec((32, 256), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    parameters = triton.CompilerParams(num_warps=4)
    return pl.pallas_call(double, shape, grid=(8,), in_specs=[spec], out_specs=spec, compiler_params=parameters)(x)


def convolution(kernel):
    image = jnp.ones((4, 64, 64, 64), jnp.bfloat16)
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=numbers).astype(jnp.float32).sum()


def callback(x):
    return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


PRIMITIVES = {
    "scan": lambda: jax.jit(lambda x: lax.scan(lambda c, r: (c + r, c * 2), jnp.zeros(256), x))(x),
    "while": lambda: jax.jit(lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x)))(x),
    "cond": lambda: jax.jit(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x))(x),
    "branches": lambda: jax.jit(branches)(x),
    "checked": lambda: checked(x),
    "switch": lambda: jax.jit(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x))(2, x),
    "sort": lambda: (jnp.sort(x, axis=-1), jnp.argsort(x, axis=0)),
    "top-k": lambda: lax.top_k(x, 5),
    "gather": lambda: x[jnp.array([1, 2, 3])],
    "take-along-axis": lambda: jnp.take_along_axis(x, jnp.zeros((256, 1), jnp.int32), axis=1),
    "scatter": lambda: x.at[jnp.array([1, 2, 3])].add(1.0),
    "segment-sum": lambda: jax.ops.segment_sum(x, jnp.arange(256) % 7, num_segments=7),
    "rng": lambda: (jax.random.permutation(key, 100), jax.random.categorical(key, x)),
    "rbg": lambda: jax.random.normal(jax.random.key(0, impl="rbg"), (128, 128)),
    "fft": lambda: (jnp.fft.fft(x), jnp.fft.rfft2(x)),
    "cholesky": lambda: jnp.linalg.cholesky(x @ x.T + 256 * jnp.eye(256)),
    "solve": lambda: jnp.linalg.solve(x, x[:, 0]),
    "svd": lambda: jnp.linalg.svd(x),
    "eigh": lambda: jnp.linalg.eigh(x + x.T),
    "qr": lambda: jnp.linalg.qr(x),
    "convolution": lambda: jax.jit(jax.grad(convolution))(jnp.ones((3, 3, 64, 64), jnp.bfloat16)),
    "donation": lambda: jax.jit(lambda x: x + 1, donate_argnums=0)(jnp.ones((512, 512))),
    "remat": lambda: jax.jit(jax.grad(remat))(x),
    "attention": lambda: jax.jit(lambda q: jax.nn.dot_product_attention(q, q, q, implementation="cudnn"))(query),
    "cumulative-sum": lambda: (jnp.cumsum(x, axis=0), lax.associative_scan(jnp.add, x)),
    "nonzero": lambda: jnp.nonzero(x > 0, size=100),
    "boolean-mask": lambda: x[np.asarray(x[:, 0] > 0)],
    "recurrence": lambda: jax.jit(jax.grad(lstm))(jnp.ones((32, 8, 256))),
    "callback": lambda: jax.jit(callback)(x),
    "int8": lambda: lax.dot(jnp.ones((256, 256), jnp.int8), jnp.ones((256, 256), jnp.int8)),
    "float8": lambda: lax.dot(half.astype(jnp.float8_e4m3fn), half.astype(jnp.float8_e4m3fn)),
    "ragged-dot": lambda: lax.ragged_dot(x[:64], jnp.ones((4, 256, 16)), jnp.full(4, 16, jnp.int32)),
    "constant": lambda: jax.jit(lambda i: jnp.asarray(table)[i].sum())(jnp.arange(3)),
    "pallas": lambda: jax.jit(pallas)(x),
}

failed = []
for name in sys.argv[1:] or PRIMITIVES:
    try:
        jax.block_until_ready(PRIMITIVES[name]())
    except Exception as error:
        failed.append(name)
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
print(f"failed={','.join(failed) or 'none'}", flush=True)
sys.exit(bool(failed))

"""JAX: compiled steps of gradient descent, with callbacks into Python and work on threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp

called = []


def loss(weights, batch):
    """One that calls back."""
    jax.debug.callback(lambda value: called.append(float(value)), batch[0, 0])
    return jnp.mean((batch @ weights - 1.0) ** 2)


@jax.jit
def step(weights, batch):
    """Gradient descent."""
    return weights - 0.1 * jax.grad(loss)(weights, batch)


weights = jnp.zeros((8, 4))
turns = int(sys.argv[1]) * 10
with ThreadPoolExecutor(2) as pool:
    for turn in range(turns):
        batch = jax.random.normal(jax.random.key(turn), (16, 8))
        other = pool.submit(lambda b=batch: jnp.sum(b).block_until_ready())
        weights = step(weights, batch)
        other.result()
jax.effects_barrier()
print("ok", f"{float(weights.sum()):.4f}", len(called))

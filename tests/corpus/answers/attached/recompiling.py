"""A step that JAX compiles anew each time, since it is another function each time."""

import socket

import jax
import jax.numpy as jnp

with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
jax.profiler.start_server(port)


def a_step(number):
    def train_step(x):
        return jnp.tanh(x @ x).sum() + number

    return jax.jit(train_step)


number = 0
print("ready", flush=True)
while True:
    a_step(number)(jnp.ones((32, 32))).block_until_ready()
    number += 1

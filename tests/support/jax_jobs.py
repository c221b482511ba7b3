"""Real JAX and TensorFlow processes with a profiler server, in an environment of their own.

`make test` makes that environment (tools/make_jax_env); elsewhere PROFD_TEST_JAX names a Python with jax.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 240.0  # importing and compiling on a busy machine


def _python(variable: str, folder: str) -> Path:
    return Path(os.environ.get(variable, ROOT / folder / "bin" / "python"))


JAX_PYTHON = _python("PROFD_TEST_JAX", ".venv-jax")
TF_PYTHON = _python("PROFD_TEST_TF", ".venv-tf")
needs_jax = pytest.mark.skipif(not JAX_PYTHON.exists(), reason=f"no jax at {JAX_PYTHON}: make .venv-jax/.installed")
needs_tensorflow = pytest.mark.skipif(
    not TF_PYTHON.exists(), reason=f"no tensorflow at {TF_PYTHON}: make .venv-tf/.installed"
)

# Both take a port that is free: a server takes none of its own choice. They rest between
# steps, because a busy loop of the smallest operations is the worst case and not a job.
JAX = """
import socket, sys, time
import jax, jax.numpy as jnp

def a_free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]

while sys.argv[1] == "server":
    try:
        jax.profiler.start_server(a_free_port())
        break
    except Exception as error:
        print(error, file=sys.stderr)

@jax.jit
def step(x):
    with jax.named_scope("my_scope"):
        return jnp.tanh(x @ x).sum()

x = jnp.ones((32, 32))
step(x).block_until_ready()
print("ready", flush=True)
profiling = False
while True:
    if sys.argv[2] and not profiling:
        jax.profiler.start_trace(sys.argv[2])
        profiling = True
        print("profiling", flush=True)
    with jax.profiler.TraceAnnotation("my_step"):
        step(x).block_until_ready()
    time.sleep(0.002)
"""

TENSORFLOW = """
import socket, time
import tensorflow as tf

with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
tf.profiler.experimental.server.start(port)

@tf.function
def step(x):
    return tf.reduce_sum(tf.tanh(tf.matmul(x, x)))

x = tf.ones((32, 32))
step(x).numpy()
print("ready", flush=True)
while True:
    step(x).numpy()
    time.sleep(0.002)
"""


@dataclass
class XlaJob:
    """A running job."""

    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    def expect(self, word: str) -> None:
        """Wait for a line on its standard output."""
        assert self.popen.stdout is not None
        if not select.select([self.popen.stdout], [], [], READY_SECONDS)[0]:
            raise TimeoutError(f"the job did not say {word} in {READY_SECONDS} s")
        line = self.popen.stdout.readline().decode().strip()
        assert line == word, f"the job said {line!r} instead of {word}"

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@contextlib.contextmanager
def jax_job(*, server: bool = True, own_profile: Path | None = None) -> Iterator[XlaJob]:
    """A JAX job that has made a step; `own_profile` makes it profile itself into that folder (not waited for)."""
    arguments = ["server" if server else "none", str(own_profile or "")]
    with _running(JAX_PYTHON, JAX, *arguments) as job:
        yield job


@contextlib.contextmanager
def tensorflow_job() -> Iterator[XlaJob]:
    """A TensorFlow job that has made a step."""
    with _running(TF_PYTHON, TENSORFLOW) as job:
        yield job


@contextlib.contextmanager
def _running(python: Path, program: str, *arguments: str) -> Iterator[XlaJob]:
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    # Unbuffered: select() sees no line that Python has read ahead.
    job = XlaJob(subprocess.Popen([python, "-c", program, *arguments], env=environ, stdout=subprocess.PIPE, bufsize=0))
    try:
        job.expect("ready")
        yield job
    finally:
        job.kill()
        assert job.popen.stdout is not None
        job.popen.stdout.close()

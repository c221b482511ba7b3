"""The light client imports beside TensorFlow and the protobuf that it pins, in either order."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-tf" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="no TensorFlow in .venv-tf; `make .venv-tf/.installed` installs it")
@pytest.mark.parametrize("first", ["tensorflow", "profclient.connection"])
def test_it_imports_beside_tensorflow(first):
    second = {"tensorflow": "profclient.connection", "profclient.connection": "tensorflow"}[first]
    script = (
        f"import {first}, {second}\n"
        "from profproto.v1 import capture_pb2\n"
        "assert capture_pb2.Capture(id='x').SerializeToString() == b'\\n\\x01x'\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'protos'}:{ROOT / 'client'}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([PYTHON, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]

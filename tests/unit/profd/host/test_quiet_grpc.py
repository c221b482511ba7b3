"""What gRPC itself writes to stderr: nothing, unless an operator has asked for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In the order of a daemon, which says so before it imports gRPC.
_PROGRAM = """
import asyncio, os
from profd import main
class Settings: pass
try:
    asyncio.run(main._serve(Settings(), Settings))
except AttributeError:
    pass
import grpc
assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"
asyncio.set_event_loop(asyncio.new_event_loop())
try:
    grpc.server(__import__("concurrent.futures").futures.ThreadPoolExecutor(1)).add_insecure_port("unix:/nowhere/s")
except RuntimeError:
    pass
"""


@pytest.mark.parametrize(("asked", "says"), [({}, False), ({"GRPC_VERBOSITY": "ERROR"}, True)])
def test_grpc_says_nothing_unless_it_was_asked(asked: dict[str, str], says: bool) -> None:
    run = subprocess.run([sys.executable, "-c", _PROGRAM], env=asked, capture_output=True, text=True, check=True)
    assert bool(run.stderr) is says, run.stderr

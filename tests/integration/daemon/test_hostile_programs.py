"""The hostile programs of `python -m bench victim` reach what they are to reach: here a stub that refuses all."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hostile import ATTACKS
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")]

ALICE = 5321
SECONDS = 120.0
ROOT = Path(__file__).resolve().parents[3]
SILENT = {
    "a flood of datagrams",
    "connects to control.sock and agent.sock",
    "lists of 1,000 traces, twelve at once",  # says how many it has made, after a while
}


@pytest.fixture(scope="module")
def stub() -> Iterator[tuple[Path, int]]:
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    folder.chmod(0o755)
    port = free_port()
    command = [sys.executable, "-m", "tests.support.refusing", str(folder), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield folder, port
        process.kill()
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - SILENT))
def test_it_is_refused_and_goes_on(stub: tuple[Path, int], name: str) -> None:
    folder, port = stub
    command = ATTACKS[name].command(ALICE, folder, trace="t", metrics=port)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], SECONDS)[0], "it says nothing"
            assert process.stdout.readline() == b"refused\n"
            assert process.poll() is None
        finally:
            process.kill()

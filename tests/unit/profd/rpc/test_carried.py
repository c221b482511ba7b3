"""Connections that porters read: as on a kernel without SO_PASSRIGHTS."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from profd.attached.agents.porters import Porters
from profd.rpc import carried as module
from profd.rpc.door import Entrance, Limits

from tests.support.people import being
from tests.support.waiting import eventually

ALICE, BOB = 5321, 5322
BURST, MORE = 5, 40

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")]


@pytest.fixture
async def entrance(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Entrance, Path]]:
    """A door in a folder, behind which somebody listens at "grpc", and whose socket is "s"."""
    monkeypatch.setattr(module, "_RATE", replace(module._RATE, per_second=1e-6, burst=BURST))
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name, socket.socket(socket.AF_UNIX) as server:
        folder = Path(name)
        folder.chmod(0o755)
        server.bind(str(folder / "grpc"))
        server.listen(100)
        porters = Porters(change_identity=True)
        made = Entrance(str(folder / "grpc"), Limits(), porters=porters)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "s"))
        (folder / "s").chmod(0o666)
        listener.listen(100)
        made.listen(listener)
        yield made, folder / "s"
        made.refuse()
        made.close(0)
        porters.close()


CONNECTS = """
import os, socket, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
held = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.argv[3]))]
for sock in held:
    sock.connect(sys.argv[1])
print("connected", flush=True)
sys.stdin.read()
"""


async def test_who_connects_too_often_is_closed_before_anything_is_made_for_it(
    entrance: tuple[Entrance, Path],
) -> None:
    made, path = entrance
    command = [sys.executable, "-c", CONNECTS, str(path), str(ALICE), str(BURST + MORE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alice:
        assert alice.stdout is not None
        assert alice.stdout.readline() == b"connected\n"
        await eventually(lambda: made.counts().refused >= MORE)
        await eventually(lambda: made.counts().open >= BURST)
        assert (made.counts().open, made.look()) == (BURST, MORE)
        # AND the door has seen none of them
        assert made._door.counts()["refused"] == 0
        # AND others come in
        with being(BOB), socket.socket(socket.AF_UNIX) as bob:
            bob.connect(str(path))
        with socket.socket(socket.AF_UNIX) as root, suppress(BlockingIOError):
            root.connect(str(path))
            await eventually(lambda: made.counts().open > BURST)
        assert made.counts().refused == MORE

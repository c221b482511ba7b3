"""What a streamer does with its daemon's orders, and when it ends."""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from profclient.streamer import service
from profclient.streamer.link import Link
from profclient.streamer.service import Service

from tests.support import arena_writer as writer

LONG = 60.0
KEY = {"incarnation": f"{0xABCDEF:016x}", "epoch": f"{7:016x}"}


def memory_files() -> set[str]:
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(f"{file.name} {file.readlink()}")
    return {one for one in found if "memfd" in one}


class Daemon:
    """The other end of the link, by hand."""

    def __init__(self, folder: Path) -> None:
        self.before = memory_files()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self.service = Service(Link(theirs), folder / "nobody")
        self.task = asyncio.create_task(self.service.run())

    def send(self, message: dict[str, Any], *fds: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([json.dumps(message).encode()], rights)
        for fd in fds:
            os.close(fd)

    async def said(self) -> dict[str, Any]:
        async with asyncio.timeout(LONG):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
        answer: dict[str, Any] = json.loads(data)
        return answer

    def left_open(self) -> set[str]:
        """Arenas, or what was to be one, that are open and were not before."""
        return memory_files() - self.before

    async def ended(self) -> None:
        async with asyncio.timeout(LONG):
            await self.task


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.socket.close()
    daemon.task.cancel()
    with contextlib.suppress(asyncio.CancelledError, ValueError):
        await daemon.task


async def test_ends_with_its_daemon(daemon: Daemon) -> None:
    daemon.send({"do": "drain", **KEY}, writer.arena_fd([]))
    daemon.socket.close()
    await daemon.ended()
    assert not daemon.left_open()


async def test_ends_when_there_is_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "IDLE_SECONDS", 0.01)
    daemon = Daemon(tmp_path)
    await daemon.ended()
    daemon.socket.close()


async def test_something_that_is_no_arena_fails_with_its_reason(daemon: Daemon) -> None:
    daemon.send({"do": "drain", **KEY}, os.memfd_create("nothing"))
    answer = await daemon.said()
    assert (answer["said"], answer["incarnation"], answer["epoch"]) == ("failed", KEY["incarnation"], KEY["epoch"])
    assert "no arena" in answer["why"]
    assert not daemon.left_open()


async def test_arena_of_another_process_fails(daemon: Daemon) -> None:
    daemon.send({"do": "drain", **KEY, "epoch": f"{8:016x}"}, writer.arena_fd([]))
    assert "another process's" in (await daemon.said())["why"]


async def test_daemon_that_does_not_answer_is_given_up(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "DISCONNECTED_SECONDS", 0.01)
    daemon.send({"do": "drain", **KEY}, writer.arena_fd([]))
    why = (await daemon.said())["why"]
    assert "took nothing for" in why
    assert "no profd answers" in why


async def test_dropped_arena_is_let_go_of_and_may_come_again(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.send({"do": "drain", **KEY}, writer.arena_fd([]))
    daemon.send({"do": "drop", **KEY})
    daemon.send({"do": "drain", **KEY}, os.memfd_create("nothing"))
    assert "no arena" in (await daemon.said())["why"]
    assert not daemon.left_open()


async def test_orders_that_mean_nothing_leave_no_descriptors(daemon: Daemon) -> None:
    daemon.send({"do": "dance", **KEY}, writer.arena_fd([]))
    daemon.send({"do": "finish", **KEY})
    daemon.send({"do": "drain", **KEY})
    daemon.send({"do": "drain", **KEY}, writer.arena_fd([]), os.memfd_create("surplus"))
    daemon.send({"do": "drain", **KEY}, writer.arena_fd([]))  # has it already
    daemon.send({"do": "drop", **KEY})
    daemon.socket.close()
    await daemon.ended()
    assert not daemon.left_open()


@pytest.mark.parametrize("packet", [b"{", b"[]", b'{"do": "drain"}', b'{"do": "x", "incarnation": 1, "epoch": "z"}'])
async def test_other_language_ends_it(daemon: Daemon, packet: bytes) -> None:
    daemon.socket.send(packet)
    with pytest.raises(ValueError, match="the daemon said"):
        await daemon.ended()

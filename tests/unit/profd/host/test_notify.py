"""sd_notify, with a real socket in systemd's place."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.host.notify import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """An abstract address: paths may be too long."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")  # autobind
        sock.settimeout(60)
        address = sock.getsockname()
        yield sock, {"NOTIFY_SOCKET": "@" + address[1:].decode()}


async def test_ready_and_stopping(systemd: tuple[socket.socket, dict[str, str]]) -> None:
    sock, environ = systemd
    notifier = Notifier(environ)
    notifier.ready("listening")
    notifier.stopping()
    notifier.close()
    assert sock.recv(999) == b"READY=1\nSTATUS=listening"
    assert sock.recv(999).startswith(b"STOPPING=1")


async def test_a_reload_begins_and_ends(systemd: tuple[socket.socket, dict[str, str]]) -> None:
    sock, environ = systemd
    notifier = Notifier(environ)
    notifier.reloading()
    notifier.told("reloaded: log_level")
    assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", sock.recv(999))
    assert sock.recv(999) == b"READY=1\nSTATUS=reloaded: log_level"


async def test_watchdog_is_petted_while_the_loop_turns(systemd: tuple[socket.socket, dict[str, str]]) -> None:
    sock, environ = systemd
    notifier = Notifier({**environ, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": str(os.getpid())})
    notifier.ready("x")
    seen = [await asyncio.to_thread(sock.recv, 999) for _ in range(4)]
    notifier.close()
    assert seen[1:] == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize("environ", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {}])
async def test_watchdog_of_somebody_else(
    systemd: tuple[socket.socket, dict[str, str]], environ: dict[str, str]
) -> None:
    sock, address = systemd
    notifier = Notifier({"WATCHDOG_USEC": "1000", **address, **environ} if environ else address)
    notifier.ready("x")
    notifier.close()
    sock.setblocking(False)
    assert sock.recv(999).startswith(b"READY=1")
    with pytest.raises(BlockingIOError):
        sock.recv(999)


async def test_a_socket_is_given_to_be_kept(systemd: tuple[socket.socket, dict[str, str]]) -> None:
    sock, environ = systemd
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind("")
        name = bound.getsockname()
        Notifier(environ).keep("kineto", bound)
    message, [descriptor], _, _ = socket.recv_fds(sock, 999, 4)
    assert message == b"FDSTORE=1\nFDNAME=kineto\nFDPOLL=0"
    with socket.socket(fileno=descriptor) as kept, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", name)
        assert kept.recv(9) == b"x"
    Notifier(environ).forget("kineto")
    assert sock.recv(999) == b"FDSTOREREMOVE=1\nFDNAME=kineto"


async def test_a_socket_that_cannot_be_given_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        Notifier({}).keep("kineto", bound)
        assert not caplog.records
        Notifier({"NOTIFY_SOCKET": "/nonexistent/notify"}).keep("kineto", bound)
    assert "is free while profd restarts" in caplog.text


async def test_without_systemd_nothing_happens() -> None:
    notifier = Notifier({})
    notifier.ready("x")
    notifier.stopping()
    notifier.close()


async def test_systemd_that_is_gone_is_no_error() -> None:
    Notifier({"NOTIFY_SOCKET": "/nonexistent/notify"}).ready("x")

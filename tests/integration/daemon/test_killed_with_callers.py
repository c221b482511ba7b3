"""A daemon is killed while somebody waits for it: their connections end, whether they had been accepted or not."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack, suppress

import pytest

from tests.support.daemon import RunningDaemon, control_answer, running_daemon

SECONDS = 60.0  # after which nobody hears of it any more
SOCKETS = {
    "control.sock": socket.SOCK_SEQPACKET,
    "agent.sock": socket.SOCK_SEQPACKET,
    "profd.sock": socket.SOCK_STREAM,
}


def connected(daemon: RunningDaemon, name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, SOCKETS[name])
    sock.settimeout(SECONDS)
    sock.connect(str(daemon.directory / name))
    return sock


@pytest.mark.parametrize("name", SOCKETS)
def test_who_waits_hears_of_its_end(name: str) -> None:
    with running_daemon() as daemon, ExitStack() as opened:
        # GIVEN one that is accepted and says nothing, which control.sock answers at once
        waiting = [opened.enter_context(connected(daemon, name))] if name != "control.sock" else []
        assert control_answer(daemon.control)["token"]
        # AND a daemon that stands still, in whose queue others wait
        daemon.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED | os.WNOWAIT)
        waiting += [opened.enter_context(connected(daemon, name)) for _ in range(20)]
        # WHEN it is killed
        daemon.kill()
        # THEN each of them ends: no process that it leaves behind keeps them open
        for sock in waiting:
            with suppress(ConnectionResetError):
                assert sock.recv(4096) == b""

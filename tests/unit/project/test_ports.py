"""Ports that tests give to servers: nobody else is given one between its choice and its use."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.ports import free_port, free_ports

ROOT = Path(__file__).resolve().parents[3]
CHOOSES = "from tests.support.ports import free_port; print(free_port(), flush=True); input()"


@pytest.mark.slow
def test_no_two_processes_have_the_same_and_the_kernel_hands_out_none() -> None:
    own = free_ports(2)
    other = subprocess.Popen(
        [sys.executable, "-c", CHOOSES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        assert len({*own, theirs, free_port()}) == 4
        other.communicate("\n")
    assert max(*own, theirs) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def test_one_that_is_taken_is_not_free() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        assert not ports._is_free(port)

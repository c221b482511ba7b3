"""What the kernel says of the other end of a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from profclient.ui.peers import uid_of_peer

from tests.support.waiting import PATIENCE_SECONDS

OTHER = 65533
CONNECTS = """
import encodings.idna, os, socket, sys  # what is imported later others may not be able to read
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as connection:
    sys.exit(len(connection.recv(100)))
"""


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_SECONDS)
        yield listening


def test_our_own(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert uid_of_peer(accepted) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
def test_another_users(listener: socket.socket) -> None:
    words = [sys.executable, "-c", CONNECTS, str(OTHER), str(listener.getsockname()[1])]
    with subprocess.Popen(words) as process:
        with listener.accept()[0] as accepted:
            assert uid_of_peer(accepted) == OTHER
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_socket_that_nobody_holds_any_more_is_nobodys(listener: socket.socket) -> None:
    """The kernel says of it that it is root's."""
    with socket.create_connection(listener.getsockname()) as connection:
        accepted = listener.accept()[0]
        connection.close()
    with accepted:
        assert uid_of_peer(accepted) is None

"""What the kernel says of the other end of a connection."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from profclient.ui import peers as module
from profclient.ui.peers import Peers, uid_in_table
from profclient.ui.sockdiag import NOWHERE, End, SockDiag

from tests.support.waiting import PATIENCE_SECONDS

OTHER = 65533
CONNECTS = """
import encodings.idna, os, socket, sys  # what is imported later others may not be able to read
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as connection:
    sys.exit(len(connection.recv(100)))
"""
RESETS = struct.pack("ii", 1, 0)  # SO_LINGER: end with a reset


def _refused(*words: object) -> socket.socket:
    raise PermissionError(*words)


@pytest.fixture(params=["netlink", "table"])
def peers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peers]:
    """By each way; the kernel that runs these tests has both."""
    if request.param == "table":
        monkeypatch.setattr(module, "SockDiag", _refused)
    else:
        monkeypatch.delattr(module, "_TABLES")  # nothing is read of it
    with closing(Peers()) as looking:
        yield looking


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_SECONDS)
        yield listening


@pytest.mark.parametrize(
    ("family", "at", "to"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "::1"), (socket.AF_INET6, "::", "127.0.0.1")],
    ids=["IPv4", "IPv6", "mapped"],
)
def test_our_own(family: socket.AddressFamily, at: str, to: str, peers: Peers) -> None:
    with (
        socket.create_server((at, 0), family=family, dualstack_ipv6=at == "::") as listening,
        socket.create_connection((to, listening.getsockname()[1])),
        listening.accept()[0] as accepted,
    ):
        assert peers.uid_of(accepted) == os.geteuid()


def test_one_mapped_at_its_own_end(listener: socket.socket) -> None:
    """The kernel keeps both addresses of it as those of IPv6."""
    with closing(Peers()) as peers, socket.socket(socket.AF_INET6) as connection:
        connection.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        with listener.accept()[0] as accepted:
            assert peers.uid_of(accepted) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
def test_another_users(peers: Peers, listener: socket.socket) -> None:
    words = [sys.executable, "-c", CONNECTS, str(OTHER), str(listener.getsockname()[1])]
    with subprocess.Popen(words) as process:
        with listener.accept()[0] as accepted:
            assert peers.uid_of(accepted) == OTHER
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_socket_that_nobody_holds_any_more_is_nobodys(peers: Peers, listener: socket.socket) -> None:
    """The kernel says of it that it is root's."""
    with socket.create_connection(listener.getsockname()) as connection:
        accepted = listener.accept()[0]
        connection.close()
    with accepted:
        assert peers.uid_of(accepted) is None


def test_a_connection_that_was_reset_is_nobodys(peers: Peers, listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as connection:
        accepted = listener.accept()[0]
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
    with accepted:
        with suppress(ConnectionResetError):
            accepted.recv(1)  # it has come
        assert peers.uid_of(accepted) is None


def test_who_listens_at_the_port_of_a_connection_that_has_gone_is_not_its_user(listener: socket.socket) -> None:
    """The kernel answers with the listening socket where no connection fits."""
    ours = End.of(listener.getsockname())
    with closing(SockDiag()) as asking:
        assert asking.find(ours, NOWHERE) is not None
        assert asking.find(ours, End(ours.address, 1)) is None
        assert asking.find(End(ours.address, 1), ours) is None


def test_answers_are_of_the_latest_question(listener: socket.socket) -> None:
    """One that was not fetched (a signal's exception) is passed over."""
    ours = End.of(listener.getsockname())
    with closing(SockDiag()) as asking:
        asking._socket.send(b"\x10\0\0\0\x14\0\1\0" + b"\xff" * 8)  # a question without its body: an error comes
        assert asking.find(ours, NOWHERE) is not None


def test_the_table_alone_does_not_know_one_mapped_at_its_own_end(listener: socket.socket) -> None:
    """Nobody is let in for what is not known."""
    with socket.socket(socket.AF_INET6) as connection:
        connection.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        with listener.accept()[0] as accepted:
            assert uid_in_table(End.of(accepted.getpeername()), End.of(accepted.getsockname())) is None

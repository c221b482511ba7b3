"""Descriptors of an earlier daemon: a real service manager's part is played by a process that executes a child."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from profd.host.kept import Kept, take
from profd.limits import PASSED_DESCRIPTORS_MAX

from tests.support.service_manager import passing

# argv: the wanted address in hex. Passed: its descriptors 3 and above.
CHILD: Final = """
import logging, os, sys
logging.basicConfig(format="%(message)s", stream=sys.stdout)
from profd.host import kept
given = kept.take()
print("variables", sorted(name for name in os.environ if name.startswith("LISTEN_")))
print("inherited", [fd for fd in range(3, 6) if os.path.exists(f"/proc/self/fd/{fd}") and os.get_inheritable(fd)])
found = given.datagrams(bytes.fromhex(sys.argv[1]))
print("found", found and (found.fileno(), found.recv(9, 0x40)))
print("again", given.datagrams(bytes.fromhex(sys.argv[1])))
print("forgotten", given.close())
print("open", [fd for fd in range(3, 6) if os.path.exists(f"/proc/self/fd/{fd}")])
"""


@pytest.fixture
def address() -> bytes:
    return b"\0profd-test-" + uuid.uuid4().hex.encode() + b"\0"


@pytest.fixture
def stored(address: bytes) -> Iterator[socket.socket]:
    """The socket of a daemon that was, with what was sent since."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, socket.socket(sock.family, sock.type) as client:
        sock.bind(address)
        client.sendto(b"waits", address)
        yield sock


def started(address: bytes, *passed: int, count: str = "", names: str = "") -> dict[str, str]:
    """What a child says that was executed with these; lines of its log by the word that begins them."""
    command = passing(sys.executable, "-c", CHILD, address.hex(), passed=passed, names=names, count=count)
    done = subprocess.run(command, capture_output=True, text=True, pass_fds=passed, check=True)
    assert not done.stderr
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    return {first: rest for first, _, rest in lines}


def test_the_socket_of_an_earlier_daemon_is_found_with_what_waits_in_it(address: bytes, stored: socket.socket) -> None:
    said = started(address, stored.fileno(), names="kineto")
    assert said == {
        "variables": "[]",
        "inherited": "[]",
        "found": "(3, b'waits')",
        "again": "None",
        "forgotten": "[]",
        "open": "[3]",
    }


def test_what_is_something_else_is_closed_and_said(address: bytes, stored: socket.socket, tmp_path: Path) -> None:
    with (
        (tmp_path / "file").open("w") as file,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream,
    ):
        other.bind(address[:-1])
        stream.bind(address)  # of another type, so that both may have it
        said = started(address, file.fileno(), other.fileno(), stream.fileno(), names="file:other:stream")
    assert (said["found"], said["forgotten"], said["open"]) == ("None", "['file', 'other', 'stream']", "[]")
    assert said["the"].startswith("service manager passed a descriptor that is of no use")


def test_a_name_of_which_one_is_used_is_not_forgotten(address: bytes, stored: socket.socket, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        said = started(address, file.fileno(), stored.fileno(), names="kineto:kineto")
    assert (said["found"], said["forgotten"], said["open"]) == ("(4, b'waits')", "[]", "[4]")


@pytest.mark.parametrize("names", ["", "one", "caf\N{LATIN SMALL LETTER E WITH ACUTE}:a\nREADY=1"])
def test_names_that_nobody_can_tell_the_service_manager(
    address: bytes, stored: socket.socket, names: str, tmp_path: Path
) -> None:
    with (tmp_path / "file").open("w") as file:
        said = started(address, file.fileno(), file.fileno(), names=names)
    assert (said["forgotten"], said["open"]) == ("['one']" if names == "one" else "[]", "[]")


def test_descriptors_that_are_not_there(address: bytes, stored: socket.socket) -> None:
    said = started(address, stored.fileno(), count=str(PASSED_DESCRIPTORS_MAX))
    assert (said["found"], said["forgotten"]) == ("(3, b'waits')", "[]")


@pytest.mark.parametrize(
    "count",
    [str(PASSED_DESCRIPTORS_MAX + 1), "-1", "1.5", "many", pytest.param("9" * 5000, id="9..."), "\N{SUPERSCRIPT TWO}"],
)
def test_a_number_that_is_none_is_said(address: bytes, stored: socket.socket, count: str) -> None:
    said = started(address, stored.fileno(), count=count)
    assert (said["found"], said["variables"]) == ("None", "[]")
    assert any(first.startswith("LISTEN_FDS=") for first in said)


@pytest.mark.parametrize("pid", ["", "1", "x", str(os.getppid())])
def test_those_of_another_process_are_left_alone(stored: socket.socket, pid: str, address: bytes) -> None:
    environ = {"LISTEN_PID": pid, "LISTEN_FDS": str(PASSED_DESCRIPTORS_MAX), "LISTEN_FDNAMES": "a", "OTHER": "x"}
    kept = take(environ)
    assert environ == {"OTHER": "x"}
    assert kept.datagrams(address) is None
    assert kept.close() == []
    assert stored.recv(9) == b"waits"


def test_without_a_service_manager_there_is_nothing() -> None:
    assert Kept().datagrams(b"\0x") is None
    assert Kept().close() == []

"""Kineto's abstract name from a daemon to the next one; the service manager alone is played."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from profd.kernel import passed
from profd.sources.kineto.endpoints import AbstractEndpoint

from tests.support.daemon import ON_AN_OLD_KERNEL, PROGRAM
from tests.support.service_manager import passing
from tests.support.waiting import BEGIN_SECONDS, until

# Its own network: no other test's daemon, nor the host's, has the name.
IN_A_NETWORK = ("unshare", "--net")
needs_networks = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*IN_A_NETWORK, "true"], capture_output=True, check=False).returncode != 0,
    reason="no network namespace can be made here",
)


class Manager:
    """Hears what daemons say, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "notify"))
        self.socket.settimeout(BEGIN_SECONDS)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def heard(self) -> tuple[str, list[int]]:
        """The next message, and descriptors that came with it."""
        said, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 4)
        return said.decode(), descriptors

    @contextmanager
    def daemon(
        self, *flags: str, before: tuple[str, ...] = (), kept: tuple[int, ...] = (), program: Sequence[str] = PROGRAM
    ) -> Iterator[None]:
        """One that is killed in the end; `kept` are passed to it, as `kineto`."""
        command = [
            sys.executable,
            *program,
            "--user",
            "--metrics",
            "off",
            "--state-dir",
            str(self.folder / "s"),
        ]
        command += ["--socket", str(self.folder / "profd.sock"), *flags]
        begun = passing(*command, passed=kept, names="kineto") if kept else command
        environ = {**os.environ, "PROFD_TORCH_BUILD": "off", "NOTIFY_SOCKET": str(self.folder / "notify")}
        with (
            (self.folder / "log").open("ab") as log,
            subprocess.Popen(
                [*before, *begun], stdin=subprocess.DEVNULL, stderr=log, env=environ, pass_fds=kept
            ) as process,
        ):
            try:
                yield
            finally:
                process.kill()


@pytest.fixture
def manager() -> Iterator[Manager]:
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    made = Manager(folder)
    yield made
    made.socket.close()
    shutil.rmtree(folder)


needs_refusal = pytest.mark.skipif(passed.may_come(), reason="users may pass descriptors here (before Linux 6.16)")


@needs_networks
@needs_refusal
def test_a_daemon_that_is_killed_leaves_the_name_to_the_next_one(manager: Manager) -> None:
    with manager.daemon(before=IN_A_NETWORK):
        said, [descriptor] = manager.heard()
        assert said == "FDSTORE=1\nFDNAME=kineto\nFDPOLL=0"
        assert manager.heard()[0].startswith("READY=1")
    with socket.socket(fileno=descriptor) as kept:
        assert kept.getsockname() == AbstractEndpoint.NAME
        kept.sendto(b"waits", AbstractEndpoint.NAME)  # this socket's network is the one where that name is
        with manager.daemon(kept=(descriptor,)):
            assert manager.heard()[0].startswith("READY=1")  # and nothing before it: the manager has this one
            what = f"a datagram of pid {os.getpid()} was not answered"
            until(lambda: what in manager.log, "the next one has received what was sent meanwhile")
    assert "of no use" not in manager.log


@needs_networks
def test_the_manager_has_no_socket_with_what_users_have_passed(manager: Manager) -> None:
    """Its last close of that would wait for their file systems, and the whole host for the manager."""
    with manager.daemon(before=IN_A_NETWORK, program=ON_AN_OLD_KERNEL):
        assert manager.heard()[0].startswith("READY=1")


@pytest.mark.parametrize(
    "flags", [["--no-kineto-abstract"], pytest.param([], marks=[needs_networks, needs_refusal])], ids=["off", "another"]
)
def test_one_that_is_of_no_use_is_closed_and_forgotten(manager: Manager, flags: list[str]) -> None:
    before = () if flags else IN_A_NETWORK
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind("")
        name = other.getsockname()
        with manager.daemon(*flags, before=before, kept=(other.fileno(),)):
            other.close()
            assert manager.heard() == ("FDSTOREREMOVE=1\nFDNAME=kineto", [])
            if not flags:
                said, [descriptor] = manager.heard()
                os.close(descriptor)
                assert said.startswith("FDSTORE=1")
            assert manager.heard()[0].startswith("READY=1")
            assert manager.log.count("of no use") == 1
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client, pytest.raises(ConnectionRefusedError):
                client.sendto(b"x", name)  # nobody has it open

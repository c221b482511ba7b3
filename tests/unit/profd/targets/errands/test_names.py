"""Names of sockets in a directory of everybody, whose lock a user keeps."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.kernel.opening import open_known
from profd.targets.errands import calls, names, office
from profd.targets.errands.child import Child, Unanswered
from profd.targets.errands.office import Errands

from tests.support import bpf
from tests.support.locked_inode import locked_names, why_not
from tests.support.waiting import eventually

needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())
MALLORY = 61301


@pytest.fixture
def errands(monkeypatch: pytest.MonkeyPatch) -> Iterator[Errands]:
    """What was told to end and has not is stuck at once."""
    monkeypatch.setattr(office, "ERRANDS_STUCK_SECONDS", 0.0)
    found = Errands()
    yield found
    found.close()


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    """Whose path is short enough for addresses."""
    with tempfile.TemporaryDirectory(prefix="kn-", dir="/tmp") as name:
        Path(name).chmod(0o1733)
        yield Path(name)


async def test_a_name_is_made(errands: Errands, sock: socket.socket, folder: Path) -> None:
    path = folder / "it"
    inode = await names.bind(sock, path, office=errands)
    assert (path.stat().st_dev, path.stat().st_ino) == inode
    assert path.stat().st_mode & 0o777 == 0o666
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", str(path))
        assert sock.recv(2) == b"x"
    await eventually(lambda: errands.statistics() == {"processes": 0, "stuck": 0})


async def test_a_question_that_nobody_waits_for_any_more_is_no_lock_that_somebody_keeps(
    errands: Errands, sock: socket.socket, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the sweep of a source that closes: on a busy host its process has not ended when the next name is made."""
    say = Child.say

    async def stopped(child: Child, *question: Any) -> None:
        os.kill(child.pid, signal.SIGSTOP)
        await say(child, *question)

    with monkeypatch.context() as slow:
        slow.setattr(Child, "say", stopped)
        sweeping = asyncio.create_task(names.sweep(folder, "x", 0.0, 10, errands))
        await eventually(lambda: any(child.lock.locked() for some in errands._holding.values() for child in some))
        sweeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sweeping
        slow.setattr(Child, "say", say)
        slow.setattr(Child, "gone", lambda child: False)
        await names.bind(sock, folder / "it", office=errands)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root serves everybody")
async def test_the_folder_is_given_its_mode(errands: Errands, sock: socket.socket, folder: Path) -> None:
    folder.chmod(0o755)
    await names.bind(sock, folder / "it", 0o1733, office=errands)
    assert folder.stat().st_mode & 0o7777 == 0o1733


async def test_what_the_kernel_says_of_it_is_said(errands: Errands, sock: socket.socket, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await names.bind(sock, folder / "nothing" / "it", office=errands)
    with pytest.raises(FileNotFoundError):
        await names.sweep(folder / "nothing", "x", 0.0, 10, errands)


@needs_fuse
async def test_who_waits_for_a_directory_is_given_up(
    errands: Errands, sock: socket.socket, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "NAMES_SECONDS", 0.5)
    with locked_names(folder, tmp_path / "mount", MALLORY):
        with pytest.raises(Unanswered):  # a list: which SIGKILL ends
            await names.sweep(folder, "x", 0.0, 10, errands)
        await eventually(lambda: errands.statistics()["processes"] == 0)
        with pytest.raises(Unanswered):
            await names.bind(sock, folder / "it", office=errands)
        assert errands.statistics() == {"processes": 1, "stuck": 1}
        # One waits there, and that is enough to know
        with pytest.raises(Unanswered):
            await names.bind(sock, folder / "it", office=errands)
        assert errands.statistics() == {"processes": 1, "stuck": 1}
        # Others are looked at as always
        assert await errands.asked(os.geteuid(), "exists", bytes(folder), 0, []) is True
    await eventually(lambda: errands.statistics() == {"processes": 0, "stuck": 0})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as fresh:
        await names.bind(fresh, folder / "it", office=errands)


@needs_fuse
async def test_a_name_that_is_known_is_found_meanwhile(sock: socket.socket, folder: Path, tmp_path: Path) -> None:
    sock.bind(str(folder / "it"))
    directory = os.open(folder, os.O_PATH)
    with locked_names(folder, tmp_path / "mount", MALLORY):
        found = open_known(directory, "it")
        assert os.path.samestat(os.fstat(found), (folder / "it").stat())
        with pytest.raises(FileNotFoundError):
            open_known(directory, "nothing")
    os.close(found)
    os.close(directory)


def test_sockets_are_for_names_alone_and_datagrams_alone() -> None:
    made, bound, connected = 41, 49, 42  # on x86_64
    for number in (made, bound, connected):
        assert bpf.answer(calls.program(), "x86_64", number, socket.AF_UNIX, socket.SOCK_DGRAM) == bpf.ENOSYS
    naming = calls.program(naming=True)
    for number in (bound, connected):
        assert bpf.answer(naming, "x86_64", number) == bpf.ALLOW
    closed = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    assert bpf.answer(naming, "x86_64", made, socket.AF_UNIX, closed) == bpf.ALLOW
    assert bpf.answer(naming, "x86_64", made, socket.AF_UNIX, socket.SOCK_STREAM) == bpf.EPERM
    assert bpf.answer(naming, "x86_64", made, socket.AF_INET, socket.SOCK_DGRAM) == bpf.EPERM

"""Who closes the last descriptor of a memfd, or of a file without a name, frees gigabytes: never the event loop."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from profd.attached.agents.protocol import PacketKind
from profd.importing.ingest import OnProgress
from profd.kernel import freeing
from profd.kernel.freeing import let_go
from profd.limits import FREED_AT_ONCE_BYTES
from profd.questions.library import Library
from profd.store.store import Store

from tests.support.agent_server import Served
from tests.support.fake_agent import FakeAgent, MiB, memfd
from tests.support.waiting import eventually, until

_THREADS = ("profd-memory", "profd-files")


@contextmanager
def closed_aside(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Grows by a thread's number with each descriptor that the threads of `freeing` have closed in the block."""
    found: list[int] = []

    def see(frame: FrameType, event: str, called: object) -> None:
        if event == "c_return" and called is os.close and threading.current_thread().name in _THREADS:
            found.append(threading.get_ident())

    monkeypatch.setattr(freeing, "_memory", freeing.Freeing("profd-memory"))
    monkeypatch.setattr(freeing, "_files", freeing.Freeing("profd-files"))
    threading.setprofile(see)
    try:
        yield found
    finally:
        threading.setprofile(None)


def filled(size: int) -> int:
    fd = memfd(size)
    os.posix_fallocate(fd, 0, size)
    return fd


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_memory_is_freed_by_a_thread_and_what_is_small_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_aside(monkeypatch) as closed:
        small = filled(FREED_AT_ONCE_BYTES)
        let_go(small)
        assert not is_open(small)
        empty = memfd(64 * MiB)  # nobody has written to it
        let_go(empty)
        assert not is_open(empty)
        large = filled(MiB)
        let_go(large)
        until(lambda: not is_open(large), "it is closed")
        until(lambda: len(closed) == 1, "the thread has said so")
        assert threading.get_ident() not in closed


def test_a_copy_of_what_waits_to_be_freed_takes_no_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a sender fills the queue with copies of one file, while the thread frees another one."""
    slow = freeing.Freeing("profd-memory")
    monkeypatch.setattr(slow, "_thread", threading.current_thread())  # none begins: everything waits
    monkeypatch.setattr(freeing, "_memory", slow)
    large = filled(MiB)
    copies = [os.dup(large) for _ in range(5)]
    for fd in (large, *copies):
        let_go(fd)
    assert is_open(large)
    assert not any(map(is_open, copies))
    os.close(large)


async def test_what_an_agent_passes_is_freed_by_a_thread_read_or_not(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closed_aside(monkeypatch) as closed:
        fake, _ = await served.attached()
        send_memory(fake)  # with a packet that no agent sends one with
        await eventually(lambda: len(closed) == 1)
        fake.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        relay = served.registry.porters.relay(os.getuid(), ours)
        memory = filled(MiB)
        socket.send_fds(theirs, [b"x"], [memory])
        os.close(memory)
        until(lambda: bool(select.select([relay.socket], [], [], 0)[0]), "its porter has passed it on")
        relay.close()
        await eventually(lambda: len(closed) == 2)
        theirs.close()


def test_what_was_sent_to_be_stored_is_freed_by_a_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An import has 32 GiB at most, and its user ends it when they like."""
    with closing(Store(tmp_path)) as store, closed_aside(monkeypatch) as closed:
        spool = Library(store, _no_job).spool()
        spool.write(bytes(MiB))
        fd = spool.fileno()
        spool.close()
        spool.close()
        until(lambda: closed, "the thread has closed it")
        assert not is_open(fd)


async def _no_job(
    job: str, args: dict[str, Any], fds: Sequence[int] = (), on_progress: OnProgress | None = None
) -> dict[str, Any]:
    raise AssertionError(job)


def send_memory(fake: FakeAgent) -> None:
    fd = filled(MiB)
    fake.send(PacketKind.STATUS, 0, fd)
    os.close(fd)

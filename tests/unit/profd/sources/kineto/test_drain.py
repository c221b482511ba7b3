"""The native drain, over real sockets: what it gives, what it drops, and that both add up to what was sent."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from profd._host import DatagramDrain
from profd.sources.kineto import wire
from profd.sources.kineto.endpoints import SO_TIMESTAMPNS, AbstractEndpoint, DirectoryEndpoint
from profd.sources.kineto.socket_thread import SocketThread

from tests.support.kineto_client import KinetoClient
from tests.support.lingering import lingering
from tests.support.waiting import until

PATIENCE = 60.0
ALICE = 5321
POLLS = 40
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

# argv: uid, own address, daemon's address, datagram, how many to send (0: until stdin ends). Says how many were taken.
SENDER = """
import os, select, socket, sys
uid, own, daemon, message, count = sys.argv[1:]
uid, message, count = int(uid), bytes.fromhex(message), int(count)
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(own)
s.settimeout(120)
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
sent = 0
print("began", flush=True)
if count:
    while sent < count:
        sent += s.sendto(message, daemon) == len(message)
else:
    s.setblocking(False)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(1000):
            try:
                s.sendto(message, daemon)
                sent += 1
            except OSError:
                pass
print(sent, flush=True)
"""


@pytest.fixture
def endpoint(folder: Path) -> Iterator[DirectoryEndpoint]:
    endpoint = asyncio.run(DirectoryEndpoint.open(folder))
    yield endpoint
    asyncio.run(endpoint.close())


@contextmanager
def draining(
    *sockets: socket.socket, queued: int = 1000, of_process: int = 1000, interrupts: bool = False
) -> Iterator[DatagramDrain]:
    drain = DatagramDrain(
        datagram_bytes=100,
        queued=queued,
        of_process=of_process,
        of_user=10_000,
        processes=100,
        users=100,
        interrupts=interrupts,
    )
    thread = threading.Thread(target=drain.run, args=([sock.fileno() for sock in sockets],))
    thread.start()
    try:
        yield drain
    finally:
        drain.stop()
        thread.join()


@contextmanager
def sender(folder: Path, uid: int, message: bytes, count: int) -> Iterator[subprocess.Popen[str]]:
    own = folder / f"{wire.CLIENT_PREFIX}{uuid.uuid4()}"
    arguments = [str(uid), str(own), str(folder / wire.DAEMON_NAME), message.hex(), str(count)]
    command = [sys.executable, "-c", SENDER, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def as_python_reads_it(sock: socket.socket) -> tuple[Any, ...]:
    """The same datagram by Python's own means."""
    data, ancillary, flags, address = sock.recvmsg(101, socket.CMSG_SPACE(12) + socket.CMSG_SPACE(16))
    parts = {kind: content for _, kind, content in ancillary}
    seconds, nanoseconds = struct.unpack("=qq", parts[SO_TIMESTAMPNS])
    pid, uid, gid = struct.unpack("=iII", parts[socket.SCM_CREDENTIALS])
    attached, truncated = bool(flags & socket.MSG_CTRUNC), bool(flags & socket.MSG_TRUNC)
    return data, pid, uid, gid, seconds * 10**9 + nanoseconds, attached, truncated, address


def test_every_datagram_is_what_python_would_have_read(endpoint, folder) -> None:
    abstract = AbstractEndpoint.open(b"\0profd-test-" + uuid.uuid4().hex.encode() + b"\0")
    longest = str(folder / "x").ljust(107, "y")
    odd = os.fsencode(folder) + b"/\xff\xfe"
    for number, receiver in enumerate((endpoint, abstract)):
        for name in (b"\0dynoconfigclient\0a\0\0", "", longest[: 107 - number], odd + b"x" * number, None):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                if name is not None:
                    client.bind(name)  # the empty one: the kernel finds one
                for data in (b"", b"abc", b"z" * 100, b"z" * 101, b"z" * 102):
                    same_as_python(client, receiver.socket, data)
    asyncio.run(abstract.close())


def same_as_python(client: socket.socket, receiver: socket.socket, data: bytes) -> None:
    client.sendto(data, receiver.getsockname())
    expected = as_python_reads_it(receiver)
    client.sendto(data, receiver.getsockname())
    with draining(receiver) as drain:
        ((descriptor, *sender, sent_ns, attached, truncated, address),) = drain.take(9)
    assert descriptor == receiver.fileno()
    assert tuple(sender) == expected[:4]
    assert (attached, truncated, address) == expected[5:]
    assert 0 <= sent_ns - expected[4] < PATIENCE * 10**9


def test_sockets_that_linger_hold_up_nobody(endpoint, folder) -> None:
    with contextlib.suppress(OSError):  # before Linux 6.16 they come
        endpoint.socket.setsockopt(socket.SOL_SOCKET, 83, 1)
    with ExitStack() as stack, KinetoClient(folder) as client:
        for _ in range(4):
            sock = stack.enter_context(lingering())
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sock.fileno()]))]
            client.socket.sendmsg([b"x"], rights, 0, client.daemon)
            sock.close()  # the last one lies in the endpoint's queue
        client.socket.sendto(b"y", client.daemon)
        with draining(endpoint.socket, interrupts=True) as drain:
            got: list[tuple[bytes, bool]] = []
            while len(got) < 5:
                got += [(data, attached) for _, data, *_, attached, _, _ in drain.take(9)]
            assert got == [(b"x", True)] * 4 + [(b"y", False)]
            until(lambda: drain.counts()["waits"] > 0, "a wait was ended")


def test_descriptors_that_come_along_are_closed(endpoint, folder) -> None:
    with contextlib.suppress(OSError):  # before Linux 6.16 they come
        endpoint.socket.setsockopt(socket.SOL_SOCKET, 83, 1)
    with KinetoClient(folder) as client, draining(endpoint.socket) as drain:
        reading, writing = os.pipe()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writing] * 3))]
        client.socket.sendmsg([b"x"], rights, 0, client.daemon)
        ((*_, attached, _, _),) = drain.take(1)
        os.close(writing)
        os.set_blocking(reading, False)
        assert os.read(reading, 1) == b""  # end of file: nobody holds the other end
        os.close(reading)
        assert attached


def test_what_waits_of_one_sender_comes_at_once(endpoint, folder) -> None:
    with KinetoClient(folder) as one, KinetoClient(folder) as other, draining(endpoint.socket, queued=7) as drain:
        for client in (one, other):
            client.socket.setblocking(True)
        for number in range(4):
            one.send(b"%d" % number)
            other.send(b"%d" % number)
        until(lambda: drain.counts()["backlog"] == 1, "eight have come")
        first, second = drain.take(1), drain.take(1)
        assert [datagram[1] for datagram in first] == [b"0", b"1", b"2", b"3"]
        assert [datagram[1] for datagram in second] == [b"0", b"1", b"2"]
        assert {first[0][-1], second[0][-1]} == {one.path, other.path}


@as_root
def test_who_has_most_in_a_full_queue_loses(endpoint, folder) -> None:
    with KinetoClient(folder) as client, draining(endpoint.socket, queued=8) as drain:
        with sender(folder, ALICE, b"a", 20) as alice:
            alice.communicate(timeout=PATIENCE)
        until(lambda: drain.counts()["backlog"] == 12, "all of hers have come")
        client.send(b"1")
        client.send(b"2")
        until(lambda: drain.counts()["backlog"] == 14, "mine have come")
        taken = drain.take(1000)
        assert [datagram[1] for datagram in taken] == [b"a"] * 6 + [b"1", b"2"]


def test_a_flood_is_counted_to_the_last(endpoint, folder) -> None:
    sent, passed = 5000, 0
    with draining(endpoint.socket, of_process=10) as drain:
        with sender(folder, os.getuid(), b"a", sent) as flooder:
            flooder.communicate(timeout=PATIENCE)
        while passed + drain.counts()["flood"] < sent:
            passed += len(drain.take(1))
        assert drain.counts()["backlog"] == 0
        assert 10 <= passed < sent / 2


def test_a_descriptor_that_becomes_another_socket(endpoint, folder) -> None:
    with KinetoClient(folder) as client, draining(endpoint.socket) as drain:
        client.send(b"before")
        assert drain.take(1)[0][1] == b"before"
        os.unlink(folder / wire.DAEMON_NAME)
        asyncio.run(endpoint.bind_anew())
        drain.changed()
        client.send(b"after")
        assert drain.take(1)[0][1] == b"after"


def test_what_is_no_socket_is_said() -> None:
    drain = DatagramDrain(datagram_bytes=1, queued=1, of_process=1, of_user=1, processes=1, users=1)
    with Path(__file__).open() as file, pytest.raises(RuntimeError, match="recvmmsg"):
        drain.run([file.fileno()])


def test_senders_do_not_wait_for_python(endpoint, folder) -> None:
    # GIVEN a thread that cannot answer, because somebody has its lock
    thread = SocketThread()
    thread.start([endpoint])
    with KinetoClient(folder) as client:
        client.socket.settimeout(PATIENCE)
        with thread._lock:
            client.poll()
            # WHEN a process sends far more than the kernel's queue holds, THEN all of it is received
            with sender(folder, os.getuid(), b"x", 2000) as flooder:
                said, _ = flooder.communicate(timeout=PATIENCE)
            assert said.split() == ["began", "2000"]
            client.poll()
    thread.stop()


@as_root
@pytest.mark.parametrize("flooders", [1, 3])
def test_every_datagram_is_counted_beside_floods(endpoint, folder, flooders) -> None:
    """Without the filter on senders, where polls may find no place; with it none is lost (test_senders.py)."""
    thread = SocketThread()
    thread.start([endpoint])
    with KinetoClient(folder) as client, ExitStack() as stack:
        floods = [stack.enter_context(sender(folder, ALICE, wire.poll(3, 0, (1,)), 0)) for _ in range(flooders)]
        until(lambda: thread.counts().get("dropped.flood"), "the flood is one")
        polls = sum(taken(client) for _ in range(POLLS))
        sent = polls + sum(int(flood.communicate("\n", timeout=PATIENCE)[0].split()[1]) for flood in floods)
        until(lambda: thread.counts()["received"] == sent, "all that was sent has come")
        until(lambda: settled(thread.counts()), "what came is answered or dropped")
    thread.stop()


def taken(client: KinetoClient) -> bool:
    """Whether a poll has found a place in the kernel's queue."""
    try:
        client.poll()
    except BlockingIOError:
        return False
    return True


def settled(counts: dict[str, int]) -> bool:
    results = [count for name, count in counts.items() if name == "answered" or name.startswith("dropped.")]
    return sum(results) == counts["received"]

"""The filter on senders, in the kernel of this host: whom it drops, that it counts each, and whom it leaves alone."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd import limits
from profd._host import SenderFilter
from profd.kernel import capabilities
from profd.sources.kineto import senders, wire
from profd.sources.kineto.endpoints import DirectoryEndpoint
from profd.sources.kineto.senders import Senders
from profd.sources.kineto.socket_thread import SocketThread

from tests.support.floods import flood, needs_compiler, needs_filter
from tests.support.kineto_client import KinetoClient
from tests.support.waiting import until

ALICE, BOB = 5321, 5322
PATIENCE = 60.0
POLLS = 40
TRIES = 10  # libkineto's, with pauses of 10 ms that double
SYS_BPF, PROG_GET_FD_BY_ID = {"x86_64": 321, "aarch64": 280}[os.uname().machine], 13
NO_END = 1 << 30


pytestmark = needs_filter


@pytest.fixture
def receiver(folder: Path) -> Iterator[socket.socket]:
    """Nobody receives there but the test."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(folder / "s"))
        os.chmod(folder / "s", 0o666)
        sock.setblocking(False)
        yield sock


def filtering(
    sock: socket.socket, of_process: int, of_user: int = NO_END, *, remembered: int = 1000, by_user: bool = True
) -> SenderFilter:
    made = SenderFilter(of_process=of_process, of_user=of_user, remembered=remembered, by_user=by_user)
    made.attach(sock.fileno())
    return made


def received(sock: socket.socket) -> int:
    count = 0
    while True:
        try:
            sock.recv(200)
        except BlockingIOError:
            return count
        count += 1


def sent(sock: socket.socket, times: int) -> int:
    """How many of this process's datagrams arrived; none is refused."""
    arrived = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        for _ in range(times):
            assert client.sendto(b"x", sock.getsockname()) == 1
            arrived += received(sock)
    return arrived


# argv: uid, address, datagrams; says how many were taken
OTHER = """
import os, socket, sys
uid = int(sys.argv[1])
if uid != os.getuid():
    os.setgid(uid); os.setuid(uid)
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.setblocking(False)
print(sum(s.sendto(b"x", sys.argv[2]) for _ in range(int(sys.argv[3]))))
"""


# argv: first uid, the one after the last, address: each sends one, in turn
MANY = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for uid in range(int(sys.argv[1]), int(sys.argv[2])):
    child = os.fork()
    if not child:
        os.setuid(uid)
        s.sendto(b"x", sys.argv[3])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def another(sock: socket.socket, uid: int, times: int) -> None:
    """Another process sends, of whose datagrams none is refused."""
    command = [sys.executable, "-S", "-c", OTHER, str(uid), sock.getsockname(), str(times)]
    assert int(subprocess.run(command, capture_output=True, check=True).stdout) == times


@pytest.mark.parametrize("by_user", [True, False], ids=["by user", "by process"])
def test_a_process_has_its_share_of_each_second_and_every_other_datagram_is_counted(receiver, by_user) -> None:
    counted = filtering(receiver, 5, by_user=by_user)
    arrived = sent(receiver, 1000)
    assert arrived % 5 == 0  # and not so many seconds
    assert 5 <= arrived <= 200
    assert arrived + counted.dropped() == 1000


def test_threads_are_their_process(receiver) -> None:
    counted = filtering(receiver, 1)
    threads = [threading.Thread(target=another_socket, args=(receiver.getsockname(),)) for _ in range(20)]
    for thread in threads:
        thread.start()
        thread.join()
    assert counted.dropped() > 5
    assert counted.dropped() + received(receiver) == 20


def another_socket(address: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client, contextlib.suppress(BlockingIOError):
        client.setblocking(False)
        client.sendto(b"x", address)


def test_the_next_second_is_another_one(receiver) -> None:
    filtering(receiver, 1)
    for _ in range(2):
        until(lambda: sent(receiver, 1) == 1, "it may send again")


# argv: address: a process that floods, then two of its user that send one each
FAMILY = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for name, count in ((b"a", 1000), (b"b", 1), (b"c", 1)):
    child = os.fork()
    if not child:
        for _ in range(count):
            s.sendto(name, sys.argv[1])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_what_is_beyond_a_process_s_share_is_not_its_user_s(receiver) -> None:
    counted = filtering(receiver, 1, 3)
    subprocess.run([sys.executable, "-S", "-c", FAMILY, receiver.getsockname()], check=True, timeout=PATIENCE)
    came = [receiver.recv(1) for _ in range(1002 - counted.dropped())]
    assert came[-2:] == [b"b", b"c"]
    assert set(came[:-2]) == {b"a"}


def test_a_user_floods_with_many_processes(receiver) -> None:
    users = filtering(receiver, 1000, 2)
    threads = [subprocess.Popen([sys.executable, "-S", "-c", OTHER, "0", receiver.getsockname(), "50"]) for _ in "abc"]
    assert [process.wait() for process in threads] == [0, 0, 0]
    arrived = received(receiver)
    assert arrived % 2 == 0
    assert arrived + users.dropped() == 150
    assert users.dropped() > 100


@needs_compiler
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("each", [0, 3], ids=["long-lived", "churn of processes"])
def test_a_place_is_left_for_others_where_nobody_receives(receiver, each) -> None:
    counted = filtering(receiver, 1, 1, remembered=16)  # the kernel's queue holds ten, or more
    with flood(receiver.getsockname(), ALICE, processes=2, each=each) as flooder:
        until(lambda: counted.dropped() > 10_000, "the flood is one")
        arrived = received(receiver) - 2
        another(receiver, BOB, 1)
        another(receiver, 0, 1)
        assert flooder.end() == counted.dropped() + received(receiver) + arrived


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_comes_after_more_senders_than_are_remembered_is_heard(receiver) -> None:
    counted = filtering(receiver, 100, 100, remembered=16)
    command = [sys.executable, "-S", "-c", MANY, str(ALICE), str(ALICE + 400), receiver.getsockname()]
    with subprocess.Popen(command) as process:
        receiver.settimeout(PATIENCE)
        for _ in range(400):
            receiver.recv(1)
    assert process.returncode == 0
    assert counted.dropped() == 0


def test_it_goes_with_the_last_of_its_sockets(folder) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(folder / "s"))
        sock.setblocking(False)
        made = filtering(sock, 0)
        fields = dict(line.split(":\t") for line in Path(f"/proc/self/fdinfo/{made.program}").read_text().splitlines())
        number = int(fields["prog_id"])
        del made
        assert is_loaded(number)
        assert sent(sock, 5) == 0
    until(lambda: not is_loaded(number), "the program is gone")


def is_loaded(program: int) -> bool:
    attributes = struct.pack("=I", program).ljust(64, b"\0")
    descriptor = ctypes.CDLL(None).syscall(SYS_BPF, PROG_GET_FD_BY_ID, attributes, len(attributes))
    if descriptor >= 0:
        os.close(descriptor)
    return bool(descriptor >= 0)


def test_what_is_no_socket_is_said(tmp_path: Path) -> None:
    made = SenderFilter(of_process=1, of_user=1, remembered=16)
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError, match="SO_ATTACH_BPF"):
        made.attach(file.fileno())


@needs_compiler
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("processes", [1, 3])
def test_polls_beside_a_flood_are_answered_and_every_datagram_is_counted(folder, processes) -> None:
    endpoint = asyncio.run(DirectoryEndpoint.open(folder))
    loaded = senders._loaded()
    thread = SocketThread(loaded)
    thread.start([endpoint])
    with KinetoClient(folder) as client, flood(folder / wire.DAEMON_NAME, ALICE, processes) as flooder:
        until(lambda: loaded.dropped() > 10_000, "the flood is one")
        for _ in range(POLLS):
            client.poll_until_taken(TRIES)
            until(lambda: client.read() is not None or thread.counts().get("dropped.stale"), "it is answered")
        taken = flooder.end() + POLLS
    until(lambda: thread.counts()["received"] == taken, "all that was taken has come")
    until(lambda: settled(thread.counts()), "what came is answered or dropped")
    thread.stop()
    asyncio.run(endpoint.close())


def settled(counts: dict[str, int]) -> bool:
    results = [count for name, count in counts.items() if name == "answered" or name.startswith("dropped.")]
    return sum(results) == counts["received"]


def test_a_socket_that_was_bound_anew_has_it_too(folder) -> None:
    endpoint = asyncio.run(DirectoryEndpoint.open(folder))
    nobody = SenderFilter(of_process=0, of_user=0, remembered=16)
    thread = SocketThread(Senders(nobody))
    thread.start([endpoint])
    os.unlink(folder / wire.DAEMON_NAME)
    asyncio.run(endpoint.bind_anew())
    thread.bound_anew(endpoint)
    with KinetoClient(folder) as client:
        client.poll()
    assert nobody.dropped() == thread.counts()["dropped.flood"] == 1
    thread.stop()
    asyncio.run(endpoint.close())


def test_without_one_that_of_an_earlier_daemon_goes() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")
        sock.setblocking(False)
        filtering(sock, 0)
        assert sent(sock, 5) == 0
        Senders().attach(sock)
        assert sent(sock, 5) == 5
        Senders().attach(sock)  # there is none any more


def test_what_it_drops_the_drain_would_have_dropped() -> None:
    """Each of its seconds overlaps two of the drain's."""
    made = senders._loaded()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")
        sock.setblocking(False)
        made.attach(sock)
        assert sent(sock, 2 * limits.KINETO_DATAGRAMS_PER_SECOND_MAX) == 2 * limits.KINETO_DATAGRAMS_PER_SECOND_MAX
        assert made.dropped() == 0


@pytest.mark.parametrize(
    ("number", "by_user", "why"),
    [
        ({True: errno.EINVAL}, False, ""),  # Linux 6.10 to 6.15, by reading
        ({True: errno.EINVAL, False: errno.EINVAL}, False, "are not told who sends"),
        ({True: errno.EPERM}, False, "no CAP_BPF"),
        ({True: errno.ENOSYS}, False, "SystemCallFilter="),
        ({True: errno.ENOMEM}, False, "bpf(BPF_MAP_CREATE): Cannot allocate memory"),
        ({}, True, ""),
    ],
)
def test_what_other_kernels_and_hosts_refuse(monkeypatch, number: dict[bool, int], by_user: bool, why: str) -> None:
    real = senders._filter

    def refusing(*, by_user: bool) -> SenderFilter:
        if by_user in number:
            raise OSError(number[by_user], os.strerror(number[by_user]), "bpf(BPF_MAP_CREATE)")
        return real(by_user=by_user)

    monkeypatch.setattr(senders, "_filter", refusing)
    loaded = senders._loaded()
    assert (loaded.filter is None, loaded.by_user) == (bool(why), by_user)
    assert why in loaded.why_not
    assert bool(why) == bool(loaded.why_not)


# argv: capabilities that it has besides CAP_BPF; says what a program has that it executes
GIVES_UP = """
import os, sys
from profd.kernel import capabilities as c
held = 1 << c.BPF | int(sys.argv[1])
c.bound(held)
c.hold(held, held, held)
c.give_up(c.BPF)
os.execv("/bin/cat", ["cat", "/proc/self/status"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")
@pytest.mark.parametrize(("others", "no_new_privs"), [(1 << 8, "0"), (1 << 7, "1")], ids=["setpcap", "without it"])
def test_nobody_has_the_capability_again_by_exec(others: int, no_new_privs: str) -> None:
    done = subprocess.run([sys.executable, "-c", GIVES_UP, str(others)], capture_output=True, text=True, check=True)
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines())
    assert [int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Inh", "Amb")] == [others, others, others, 0]
    assert status["NoNewPrivs"] == no_new_privs
    assert int(status["CapBnd"], 16) == others or no_new_privs == "1"
    assert capabilities.permitted() >> capabilities.BPF & 1  # this process still has it

"""The door, with real sockets on both sides; other users are those that the kernel says."""

from __future__ import annotations

import grp
import os
import resource
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from profd._host import Door
from profd.fairness.frame_rates import FrameRates
from profd.limits import HEADER_FIELDS_MAX
from profd.rpc.door import Entrance, Limits, refusal

from tests.support import http2
from tests.support.descriptors import nothing_left_open
from tests.support.people import being
from tests.support.waiting import until

ALICE, BOB, CAROL = 5321, 5322, 5323
SECONDS = 60.0
MUCH = 1 << 30
PLENTY = FrameRates(MUCH, MUCH, MUCH, MUCH)
NOTHING_MORE = 1e-6  # a second
FREE = Limits(each=100, host=1000, user=PLENTY, all=PLENTY)
REFUSAL = refusal(3, "of one user")
FIELD = b"\x10\x01a\x7f\xe3\x06" + bytes(994)  # of a header block: 1000 bytes

pytestmark = pytest.mark.slow
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")


def received(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise AssertionError(f"it ended after {data!r}")
        data += piece
    return data


def rest(sock: socket.socket) -> bytes:
    """Until it ends."""
    data = b""
    with suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            data += piece
    return data


class Rig:
    """A door; behind it a socket that takes what comes."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self._open: list[socket.socket] = []
        self.server = self.keep(socket.socket(socket.AF_UNIX))
        self.server.bind(str(folder / "grpc"))
        self.server.listen(100)
        self.server.settimeout(SECONDS)
        self.door = Door(str(folder / "grpc"), limits, REFUSAL, refusal(9, "of this host"))
        self.listen("s")

    def listen(self, name: str) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.folder / name))
            (self.folder / name).chmod(0o666)
            listener.listen(100)
            self.door.listen(listener.fileno())

    def keep(self, sock: socket.socket) -> socket.socket:
        self._open.append(sock)
        sock.settimeout(SECONDS)
        return sock

    def client(self, uid: int | None = None, name: str = "s", groups: Sequence[int] = ()) -> socket.socket:
        sock = self.keep(socket.socket(socket.AF_UNIX))
        with being(uid, groups):
            sock.connect(str(self.folder / name))
        return sock

    def begun(self, uid: int | None = None, groups: Sequence[int] = ()) -> tuple[socket.socket, socket.socket]:
        """A client that has said hello, and its other end."""
        client = self.client(uid, groups=groups)
        client.sendall(http2.BEGIN)
        server = self.keep(self.server.accept()[0])
        assert received(server, len(http2.BEGIN)) == http2.BEGIN
        return client, server

    def counts(self, what: str) -> int:
        return self.door.counts()[what]

    def drop(self) -> None:
        """The door itself."""
        del self.door
        self.close = lambda: None  # type: ignore[method-assign]  # there is nothing more

    def close(self) -> None:
        self.door.close(0)
        for sock in self._open:
            sock.close()


@pytest.fixture
def rig_of() -> Iterator[Callable[[Limits], Rig]]:
    rigs: list[Rig] = []
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)

        def make(limits: Limits) -> Rig:
            rigs.append(Rig(folder, limits))
            return rigs[-1]

        yield make
        for rig in rigs:
            rig.close()


@pytest.fixture
def rig(rig_of: Callable[[Limits], Rig]) -> Rig:
    return rig_of(FREE)


def refused(client: socket.socket) -> bool:
    """Whether a call of this connection is answered as one beyond a user's part."""
    client.sendall(http2.BEGIN + http2.call("/x", 1) + http2.call("/x", 3))
    answer = http2.frames(rest(client))
    settings = [(0, http2.SETTINGS, 0, 0), (0, http2.SETTINGS, 1, 0)]
    over = http2.END_HEADERS | http2.END_STREAM
    return answer == [*settings, *((len(REFUSAL), http2.HEADERS, over, stream) for stream in (1, 3))]


def test_bytes_pass_as_they_are_cut_anywhere(rig: Rig) -> None:
    client = rig.client()
    sent = http2.BEGIN + http2.call("/x", 1) + http2.frame(http2.DATA, 1, 1, bytes(range(256)))
    for byte in sent:
        client.sendall(bytes([byte]))
    server, _ = rig.server.accept()
    with server:
        server.settimeout(SECONDS)
        assert received(server, len(sent)) == sent
        for byte in b"any answer":
            server.sendall(bytes([byte]))
        assert received(client, 10) == b"any answer"


def test_much_passes_both_ways_at_once(rig: Rig) -> None:
    client, server = rig.begun()
    piece = http2.frame(http2.DATA, 0, 1, os.urandom(16_384))
    whole = piece * 1000
    got: dict[str, bytes] = {}

    def read(name: str, sock: socket.socket) -> None:
        got[name] = received(sock, len(whole))

    def write(sock: socket.socket) -> None:
        sock.sendall(whole)

    threads = [threading.Thread(target=read, args=pair) for pair in (("client", client), ("server", server))]
    threads += [threading.Thread(target=write, args=(sock,)) for sock in (client, server)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {"client": whole, "server": whole}


def test_what_is_no_http2_never_reaches_grpc(rig: Rig) -> None:
    client = rig.client()
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert rest(client) == b""
    assert rig.counts("foreign") == 1
    other, server = rig.begun()  # the first that gRPC sees
    other.sendall(http2.frame(http2.HEADERS, 4, 0, b"x"))
    assert rest(server) == b""
    assert rest(other) == b""


def test_who_says_nothing_is_let_go_of(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, begin_seconds=0.05))
    silent, half = rig.client(), rig.client()
    half.sendall(http2.PREFACE[:10])
    assert (rest(silent), rest(half)) == (b"", b"")
    client, server = rig.begun()  # and nobody else
    client.sendall(http2.frame(http2.PING, 0, 0, bytes(8)))
    assert received(server, 17)


PIECE = http2.frame(http2.CONTINUATION, 0, 1, FIELD)
EARLIER = b"\xbe"  # the field that was kept last, once more


@pytest.mark.parametrize(
    "sent", [PIECE * 70, http2.frame(http2.CONTINUATION, 4, 1, PIECE[9:] * 70)], ids=["many", "large"]
)
def test_a_header_block_has_a_most(rig: Rig, sent: bytes) -> None:
    client, server = rig.begun()
    begin = http2.call("/x", 1, flags=0)
    within = PIECE * 60 + http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1)
    client.sendall(begin + within)
    assert received(server, len(begin + within)) == begin + within
    # WHEN the next one is larger THEN both sides are ended
    with suppress(BrokenPipeError):
        client.sendall(begin + sent)
    assert len(rest(server)) < (1 << 16) + 70 * http2.HEADER_BYTES
    assert rest(client) == b""
    assert rig.counts("foreign") == 1


def test_a_header_block_has_so_many_fields(rig: Rig) -> None:
    client, server = rig.begun()
    fields = EARLIER * HEADER_FIELDS_MAX
    sent = http2.frame(http2.HEADERS, 0, 1, fields[:100]) + http2.frame(http2.CONTINUATION, 4, 1, fields[100:])
    client.sendall(sent * 2)  # of each block anew
    assert received(server, 2 * len(sent)) == sent * 2
    # WHEN a block has more THEN both sides are ended, and nothing of what was too much has passed
    client.sendall(http2.frame(http2.HEADERS, 4, 3, fields + EARLIER * 60_000)[: 1 << 14])
    assert len(rest(server)) <= http2.HEADER_BYTES
    assert rest(client) == b""
    assert rig.counts("foreign") == 1


@pytest.mark.parametrize(
    "sent", [http2.call("/x", 1, flags=0), http2.call("/x", 1)[:-5]], ids=["no last frame", "half a frame"]
)
def test_a_header_block_has_an_end(rig_of: Callable[[Limits], Rig], sent: bytes) -> None:
    rig = rig_of(replace(FREE, begin_seconds=0.05))
    good, its_server = rig.begun()
    client, server = rig.begun()
    client.sendall(sent)
    assert rest(server) == sent
    assert rest(client) == b""
    # AND who ends theirs stays, however long ago that was
    good.sendall(http2.call("/x", 1))
    assert received(its_server, len(http2.call("/x", 1)))
    assert rig.counts("open") == 1


def test_a_client_that_has_said_all_is_still_answered(rig: Rig) -> None:
    client, server = rig.begun()
    client.sendall(http2.call("/x", 1))
    client.shutdown(socket.SHUT_WR)
    assert rest(server) == http2.call("/x", 1)
    server.sendall(b"answer")
    server.close()
    assert rest(client) == b"answer"
    until(lambda: rig.counts("open") == 0, "it is over")


def test_what_grpc_said_last_arrives(rig: Rig) -> None:
    client, server = rig.begun()
    server.sendall(bytes(100_000))
    server.close()
    assert len(rest(client)) == 100_000
    until(lambda: rig.counts("open") == 0, "it is over")


def test_a_client_that_is_gone_is_gone_for_grpc(rig: Rig) -> None:
    client, server = rig.begun()
    client.close()
    assert rest(server) == b""
    server.close()
    until(lambda: rig.counts("open") == 0, "it is over")


def test_who_does_not_read_holds_little_and_nobody_up(rig: Rig) -> None:
    slow, server = rig.begun()
    server.setblocking(False)
    sent = 0

    def push() -> bool:
        nonlocal sent
        try:
            while True:
                sent += server.send(bytes(65536))
        except BlockingIOError:
            return rig.counts("open") == 1

    for _ in range(100):
        push()
    assert sent < 8 << 20
    # WHEN another comes: THEN they are served
    client, other = rig.begun()
    other.sendall(b"hello")
    assert received(client, 5) == b"hello"
    # AND what was sent arrives when it is read
    server.settimeout(SECONDS)
    server.shutdown(socket.SHUT_WR)
    assert len(rest(slow)) == sent


def test_who_never_reads_what_came_last_is_ended(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, end_seconds=0.05))
    slow, server = rig.begun()
    server.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            server.send(bytes(65536))
    server.close()
    until(lambda: rig.counts("open") == 0, "it is over")
    assert rest(slow)


@needs_root
def test_connections_of_one_user(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, each=3, answered_each=2))
    held = [rig.begun(ALICE) for _ in range(3)]
    # WHEN more come: THEN the first are told why, others find it closed, and none reaches gRPC
    told = [rig.client(ALICE) for _ in range(2)]
    shut = [rig.client(ALICE) for _ in range(5)]
    assert [rest(client) for client in shut] == [b""] * 5
    assert all(refused(client) for client in told)
    assert rig.counts("refused") == 7
    assert rig.door.counts()["refused_uid"] == ALICE
    # AND it is nobody else's limit, and not root's
    rig.begun(BOB)
    for _ in range(10):
        rig.begun()
    # AND what has ended is given back
    held[0][0].close()
    held[0][1].close()
    until(lambda: rig.counts("open") == 13, "it is over")
    rig.begun(ALICE)


@needs_root
def test_members_of_the_admin_group_are_not_limited(rig_of: Callable[[Limits], Rig]) -> None:
    group, many = 7654, range(20_000, 20_100)  # more groups than are asked for at first
    nothing = FrameRates(NOTHING_MORE, 2, NOTHING_MORE, 20)
    rig = rig_of(replace(FREE, each=1, answered_each=0, user=nothing, admins=group))
    for groups in ((group,), (*many, group)):
        for _ in range(3):
            client, server = rig.begun(ALICE, groups)
            client.sendall(calls(10))
            assert received(server, len(calls(10))) == calls(10)
    # WHEN she comes without it, by a session from before THEN she is as others are
    rig.begun(ALICE, many)
    assert rest(rig.client(ALICE, groups=many)) == b""


@needs_root
def test_an_admins_connection_is_not_limited_when_a_porter_carries_it(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, each=1, answered_each=0))
    for open_before in range(3):
        theirs, ours = socket.socketpair()
        rig.keep(theirs)
        rig.door.take(ours.detach(), ALICE, free=True)
        until(lambda count=open_before + 1: rig.counts("open") == count, "it is there")
    assert rig.counts("refused") == 0


@needs_root
def test_another_admin_group_holds_for_who_comes_next(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, each=1, answered_each=0, admins=7654))
    rig.begun(ALICE, (7655,))
    assert rest(rig.client(ALICE, groups=(7655,))) == b""
    rig.door.set_admins(7655)
    rig.begun(ALICE, (7655,))
    assert rest(rig.client(ALICE, groups=(7654,))) == b""


@needs_root
def test_connections_of_those_who_have_left_the_group_end(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, streamers=CAROL, admins=7654))
    stay = [rig.begun(), rig.begun(ALICE, (1, 7655)), rig.begun(CAROL)]
    gone = [rig.begun(ALICE, (1,)), rig.begun(BOB), rig.begun(BOB, (7654,))]
    theirs, ours = socket.socketpair()
    rig.door.take(ours.detach(), ALICE, free=False)  # read by a porter: of its groups nothing is known
    until(lambda: rig.counts("open") == 7, "it is there")
    rig.door.keep_members(7655)
    with theirs:
        assert [rest(client) for client, _ in gone] == [b""] * 3
        assert theirs.recv(1) == b""
    assert rig.counts("open") == 3
    for client, server in stay:
        client.sendall(calls(1))
        assert received(server, len(calls(1))) == calls(1)


@needs_root
def test_streamers_are_one_user_and_serve_many(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, each=1, user=replace(PLENTY, streams_burst=1, streams=NOTHING_MORE), streamers=BOB))
    for _ in range(5):
        rig.begun(BOB)
    rig.begun(ALICE)
    assert refused(rig.client(ALICE))


@needs_root
def test_a_full_host_has_room_for_who_has_less_than_the_others(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, host=4, answered_each=0))
    for _ in range(4):
        rig.begun(ALICE)
    assert rest(rig.client(ALICE)) == b""
    for _ in range(2):
        rig.begun(BOB)
    assert rest(rig.client(BOB)) == b""
    rig.begun(CAROL)
    rig.begun()


def starved(each: float, host: float = MUCH) -> Limits:
    """So many streams, a connection being one, and then none."""
    return replace(
        FREE,
        user=FrameRates(NOTHING_MORE, each, MUCH, MUCH),
        all=FrameRates(NOTHING_MORE if host < MUCH else MUCH, host, MUCH, MUCH),
    )


def calls(count: int, first: int = 1) -> bytes:
    return b"".join(http2.call("/x", stream) for stream in range(first, first + 2 * count, 2))


@needs_root
def test_streams_beyond_a_users_rate_are_not_read(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(starved(each=6))
    client, server = rig.begun(ALICE)
    client.sendall(calls(10))
    passed = len(calls(5))
    assert received(server, passed) == calls(5)
    until(lambda: rig.counts("throttled") == 1, "it waits")
    # WHEN others come, and root: THEN they are served, and nothing more of hers has been
    others = [rig.begun(BOB), rig.begun()]
    for other, its_server in others:
        other.sendall(calls(5))
        assert received(its_server, passed) == calls(5)
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.recv(1)
    # AND who goes away while they wait is gone for gRPC, too
    client.close()
    server.settimeout(SECONDS)
    assert rest(server) == b""


@needs_root
def test_nothing_of_a_flood_is_lost(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(replace(FREE, user=FrameRates(2000, 2, 4000, 20)))
    client, server = rig.begun(ALICE)
    flood = b"".join(calls(1, stream) + http2.frame(http2.PING, 0, 0, bytes(8)) for stream in range(1, 400, 2))
    writer = threading.Thread(target=client.sendall, args=(flood,))
    writer.start()
    assert received(server, len(flood)) == flood
    writer.join()
    assert rig.counts("throttled") > 10


@needs_root
@pytest.mark.parametrize(
    "sent",
    [
        http2.frame(http2.PING, 0, 0, bytes(8)),
        http2.frame(http2.SETTINGS),
        http2.frame(http2.DATA, 0, 1),
        http2.frame(http2.DATA, 0, 1, bytes(1100)),
        http2.call("/x", 1, flags=0) + http2.frame(http2.CONTINUATION, 4, 1, FIELD),
    ],
    ids=["ping", "settings", "data", "just no small data", "continuation"],
)
def test_small_frames_have_a_rate(rig_of: Callable[[Limits], Rig], sent: bytes) -> None:
    rig = rig_of(replace(FREE, user=FrameRates(MUCH, MUCH, NOTHING_MORE, 50)))
    client, _server = rig.begun(ALICE)
    client.sendall(sent * 100)
    until(lambda: rig.counts("throttled") == 1, "it waits")
    other, its_server = rig.begun(BOB)
    other.sendall(sent)
    assert received(its_server, len(sent)) == sent


@needs_root
def test_what_belongs_to_an_open_stream_does_not_wait_for_new_ones(rig_of: Callable[[Limits], Rig]) -> None:
    rig = rig_of(starved(each=6))
    job, job_server = rig.begun(ALICE)
    job.sendall(calls(1))
    received(job_server, len(calls(1)))
    flood, flood_server = rig.begun(ALICE)
    flood.sendall(calls(10))
    received(flood_server, len(calls(3)))
    until(lambda: rig.counts("throttled") == 1, "the flood waits")
    data = http2.frame(http2.DATA, 0, 1, b"small") + http2.frame(http2.DATA, 1, 1, bytes(16_000))
    job.sendall(data)
    assert received(job_server, len(data)) == data


@needs_root
def test_who_waits_for_the_host_has_turns_by_user(rig_of: Callable[[Limits], Rig]) -> None:
    # GIVEN a user whose hundreds of streams wait on many connections
    rig = rig_of(replace(FREE, all=FrameRates(100, 20, MUCH, MUCH)))
    flooding = [rig.begun(ALICE) for _ in range(5)]
    for client, _ in flooding:
        client.sendall(calls(400))
    until(lambda: rig.counts("throttled") >= len(flooding), "they wait")
    # WHEN another comes: THEN theirs is one of the next
    client, server = rig.begun(BOB)
    client.sendall(calls(1))
    assert received(server, len(calls(1))) == calls(1)
    arrived = 0
    for _, its_server in flooding:
        its_server.setblocking(False)
        with suppress(BlockingIOError):
            while piece := its_server.recv(1 << 20):
                arrived += len(piece)
    assert arrived < len(calls(400)), "the flood was not let through first"


def test_another_file(rig: Rig) -> None:
    client, server = rig.begun()
    rig.listen("again")
    other = rig.client(name="again")
    other.sendall(http2.BEGIN)
    with rig.server.accept()[0] as its_server:
        assert received(its_server, len(http2.BEGIN)) == http2.BEGIN
        client.sendall(calls(1))
        assert received(server, len(calls(1))) == calls(1)
    until(lambda: not answers(rig, "s"), "nobody listens at the first any more")


def answers(rig: Rig, name: str) -> bool:
    try:
        rig.client(name=name).close()
    except ConnectionRefusedError:
        return False
    return True


def test_at_the_end_nobody_comes_in_and_what_is_on_its_way_arrives(rig: Rig) -> None:
    client, server = rig.begun()
    rig.door.refuse()
    until(lambda: not answers(rig, "s"), "nobody listens")
    client.sendall(calls(1))
    assert received(server, len(calls(1))) == calls(1)
    server.sendall(b"bye")
    server.close()
    rig.door.close(SECONDS)
    assert rest(client) == b"bye"
    assert rig.counts("open") == 0


def test_nothing_is_left_of_it(rig_of: Callable[[Limits], Rig]) -> None:
    threads = set(os.listdir("/proc/self/task"))
    with nothing_left_open():
        rig = rig_of(FREE)
        for _ in range(5):
            rig.begun()
        rig.client()
        rig.close()
        rig.drop()
    # The kernel lists a thread for a moment after whoever joined it goes on.
    until(lambda: set(os.listdir("/proc/self/task")) <= threads, "no thread of it is left")


def test_without_descriptors_it_waits_and_goes_on(rig: Rig) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [rig.client() for _ in range(3)]
    until(lambda: rig.counts("open") == 3, "they are in")
    waiting = socket.socket(socket.AF_UNIX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # nobody has a new one
    try:
        waiting.connect(str(rig.folder / "s"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with waiting:
        until(lambda: rig.counts("open") == 4, "it is in, too")
    assert clients


@contextmanager
def entrance(rig: Rig, name: str, admin_group: str = "") -> Iterator[Entrance]:
    """One that lets nobody in who is like others."""
    made = Entrance(str(rig.folder / "grpc"), replace(FREE, each=0, answered_each=0), admin_group)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(rig.folder / name))
    (rig.folder / name).chmod(0o666)
    listener.listen(100)
    made.listen(listener)
    try:
        yield made
    finally:
        made.close(0)


@needs_root
def test_who_is_refused_again_and_again_is_told_of_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    refused = 0
    with entrance(rig, "again") as made:
        for _ in range(5):
            assert rest(rig.client(ALICE, "again")) == b""
            refused += made.look()
    assert refused == 5
    assert caplog.text.count("connections refused") == 1


@needs_root
@pytest.mark.parametrize(("admins", "refused"), [("", 1), ("no-such-group", 1), (grp.getgrgid(0).gr_name, 0)])
def test_the_admin_group_is_looked_up_by_its_name(rig: Rig, admins: str, refused: int) -> None:
    with entrance(rig, "of", admins) as made:
        rig.client(ALICE, "of", groups=(0,))
        until(lambda: made.counts().refused + made.counts().open == 1, "it is in, or refused")
        assert made.counts().refused == refused

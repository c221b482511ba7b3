"""The thread and its sockets, with real datagrams."""

from __future__ import annotations

import array
import asyncio
import logging
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from profd import limits
from profd.kernel import opening
from profd.sources.kineto import holders, wire
from profd.sources.kineto.endpoints import SO_TIMESTAMPNS, AbstractEndpoint, DirectoryEndpoint, ModeOff
from profd.sources.kineto.registry import HandOut, Pending, Registered
from profd.sources.kineto.socket_thread import SocketThread
from profd.targets.errands import names
from profd.targets.process import ProcessId

from tests.support.kineto_client import KinetoClient, config_of
from tests.support.locked_inode import locked_names, why_not
from tests.support.python_jobs import seen
from tests.support.waiting import comes, eventually

PATIENCE = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kp-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def endpoint(folder: Path) -> AsyncIterator[DirectoryEndpoint]:
    endpoint = await DirectoryEndpoint.open(folder)
    yield endpoint
    await endpoint.close()


@pytest.fixture
def polls(endpoint: DirectoryEndpoint) -> Iterator[SocketThread]:
    thread = SocketThread()
    thread.start([endpoint])
    yield thread
    thread.stop()


@pytest.fixture
def client(endpoint: DirectoryEndpoint, folder: Path) -> Iterator[KinetoClient]:
    with KinetoClient(folder) as client:
        yield client


def me() -> ProcessId:
    found = seen(os.getpid())
    return found.id


async def dropped(polls: SocketThread, reason: str, times: int = 1) -> None:
    await eventually(lambda: polls.counts().get(f"dropped.{reason}", 0) >= times)


async def test_identity_comes_from_the_kernel(polls, client) -> None:
    client.poll(pids=(1, 2, 3))
    await eventually(lambda: polls.get(me()))
    (known,) = polls.all()
    assert (known.peer.id, known.peer.uid, known.peer.mode) == (me(), os.getuid(), "directory")


async def test_config_reaches_the_client_once(polls, client) -> None:
    handed: list[HandOut] = []
    assert await client.ask() == ""
    assert polls.submit(me(), Pending("t", "A=1\n", handed.append))
    async with asyncio.timeout(PATIENCE):
        while await client.ask() != "A=1\n":
            pass
    assert len(handed) == 1
    assert polls.counts()["configs"] == 1
    assert not polls.withdraw(me(), "t")


async def test_stale_poll_gets_no_answer(endpoint, client) -> None:
    client.poll()
    sent = time.time_ns()
    await eventually(lambda: time.time_ns() - sent > 100_000_000)
    thread = SocketThread()
    thread.start([endpoint])
    await dropped(thread, "stale")
    thread.stop()
    assert client.read() is None


async def test_only_the_newest_of_a_backlog_is_answered(endpoint, client) -> None:
    for _ in range(5):
        client.poll()
    thread = SocketThread()
    thread.start([endpoint])
    await dropped(thread, "stale", times=4)
    await eventually(lambda: thread.get(me()))
    thread.stop()
    known = thread.get(me())
    assert isinstance(known, Registered)
    assert known.polls == 1
    assert thread.counts().get("answered", 0) <= 1


async def test_malformed_datagrams_are_counted_and_logged_once(polls, client, caplog) -> None:
    whole = wire.poll(3, 0, (1,))
    with caplog.at_level(logging.WARNING):
        for datagram in [b"", b"x", whole[:-1], whole[:-1], whole[:-1]]:
            client.send(datagram)
        client.send(struct.pack("=Q32s", 0, b"nonsense"))
        client.send(struct.pack("=Q32siiq", 16, b"req", 3, 9, 0))
        client.send(b"y" * (limits.KINETO_DATAGRAM_BYTES_MAX + 1))
        await dropped(polls, "short", 2)
        await dropped(polls, "size_field", 3)
        await dropped(polls, "unknown_type")
        await dropped(polls, "payload")
        await dropped(polls, "oversized")
    assert len([record for record in caplog.records if "size_field" in record.message]) == 1
    assert polls.all() == []
    assert await client.ask() == ""


def refused_at_the_sender() -> bool:
    """Whether this kernel has SO_PASSRIGHTS (Linux 6.16)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.getsockopt(socket.SOL_SOCKET, 83)
        except OSError:
            return False
    return True


async def test_attached_descriptors_do_not_stay_with_us(polls, client) -> None:
    reading, writing = os.pipe()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writing]))]
    if refused_at_the_sender():
        with pytest.raises(PermissionError):
            client.socket.sendmsg([wire.poll(3, 0, ())], rights, 0, client.daemon)
    else:
        client.socket.sendmsg([wire.poll(3, 0, ())], rights, 0, client.daemon)
        await dropped(polls, "attached_descriptors")
    os.close(writing)
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b""  # end of file: nobody holds the other end
    os.close(reading)


async def test_senders_without_a_client_address_are_not_answered(polls, client, folder, tmp_path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unbound:
        unbound.sendto(wire.poll(3, 0, ()), client.daemon)
    await dropped(polls, "address")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as misnamed:
        misnamed.bind(str(folder / "other"))
        misnamed.sendto(wire.poll(3, 0, ()), client.daemon)
        await dropped(polls, "address", 2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as elsewhere:
        elsewhere.bind(f"{folder}/./{wire.CLIENT_PREFIX}1")  # another spelling aborts a real client
        elsewhere.sendto(wire.poll(3, 0, ()), client.daemon)
        await dropped(polls, "address", 3)
    assert polls.all() == []


async def test_reply_never_goes_to_a_swapped_address(polls, client, folder) -> None:
    await client.ask()
    victim = KinetoClient(folder)
    os.rename(client.path, client.path + "-moved")
    os.symlink(victim.path, client.path)
    client.poll()
    await dropped(polls, "forged_address")
    assert victim.read() is None
    victim.close()


@pytest.fixture
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.12: it does not know RESOLVE_CACHED."""
    monkeypatch.setattr(opening, "_RESOLVE_CACHED", 1 << 40)
    monkeypatch.setattr(names, "NAMES_SEND_SECONDS", 1.0)


@pytest.mark.usefixtures("old_kernel")
async def test_an_old_kernel_sends_by_an_errand(polls, client, folder, endpoint) -> None:
    assert await client.ask() == ""
    assert not endpoint.lost()
    victim = KinetoClient(folder)
    os.rename(client.path, client.path + "-moved")
    os.symlink(victim.path, client.path)
    client.poll()
    await dropped(polls, "forged_address")
    assert victim.read() is None
    victim.close()
    os.unlink(folder / wire.DAEMON_NAME)
    assert endpoint.lost()


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.usefixtures("old_kernel")
async def test_an_old_kernel_waits_for_nobody_who_keeps_the_lock(polls, client, folder, tmp_path) -> None:
    assert await client.ask() == ""
    with KinetoClient(folder) as nameless:
        os.unlink(nameless.path)
        with locked_names(folder, tmp_path / "mount", 61301):
            nameless.poll()  # whoever looks for its name waits
            await dropped(polls, "unreachable")
            client.poll()
            await dropped(polls, "unreachable", times=2)
    assert await client.ask() == ""


async def test_client_that_does_not_read(polls, client) -> None:
    for _ in range(limits.KINETO_POLLS_PER_SECOND_MAX - 10):
        client.socket.setblocking(True)
        client.poll()
    reasons = ("dropped.queue_full", "dropped.stale")
    await eventually(lambda: sum(polls.counts().get(reason, 0) for reason in reasons) > 0)
    with KinetoClient(client.directory) as other:
        assert await other.ask() == ""


async def test_flood_by_another_process_does_not_starve_others(polls, client, folder) -> None:
    program = (
        "import socket,sys\n"
        "s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM); s.bind(sys.argv[1]); s.setblocking(False)\n"
        "while True:\n"
        "    try: s.sendto(bytes.fromhex(sys.argv[3]), sys.argv[2])\n"
        "    except OSError: pass\n"
    )
    address = folder / f"{wire.CLIENT_PREFIX}{uuid.uuid4()}"
    arguments = [str(address), client.daemon, wire.poll(3, 0, ()).hex()]
    flooder = subprocess.Popen([sys.executable, "-c", program, *arguments])
    try:
        await eventually(lambda: any(key in polls.counts() for key in ("dropped.flood", "dropped.queue_full")))
        client.socket.setblocking(True)
        client.socket.settimeout(PATIENCE)
        client.poll()
        await eventually(lambda: polls.get(me()))
    finally:
        flooder.kill()
        flooder.wait()


async def test_what_one_process_says_too_often_is_not_looked_at(polls, client) -> None:
    sent = 4 * limits.KINETO_DATAGRAMS_PER_SECOND_MAX
    client.socket.setblocking(True)
    for _ in range(sent):
        client.send(b"x")
    await eventually(lambda: polls.counts().get("received", 0) == sent)
    counts = polls.counts()
    assert counts["dropped.flood"] > 0
    assert counts["dropped.flood"] + counts["dropped.short"] == sent


async def test_name_held_by_another_daemon_is_said(folder, endpoint) -> None:
    with pytest.raises(ModeOff, match=rf"held by pid {os.getpid()} \("):
        await DirectoryEndpoint.open(folder)
    name = b"\0profd-test-" + uuid.uuid4().hex.encode() + b"\0"
    first = AbstractEndpoint.open(name)
    with pytest.raises(ModeOff, match=rf"held by pid {os.getpid()} \("):
        AbstractEndpoint.open(name)
    await first.close()
    await AbstractEndpoint.open(name).close()


async def test_stale_socket_of_a_dead_daemon_is_replaced(folder) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(folder / wire.DAEMON_NAME))
    endpoint = await DirectoryEndpoint.open(folder)
    assert endpoint.problem() == ""
    await endpoint.close()


BINDS = "import socket; made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); made.bind({name!r})"
TAKES = {
    "socket": BINDS + "; print('taken', flush=True); input()",  # it answers as long as that runs
    "dead socket": BINDS,
    "link": "import os; os.symlink('/etc/passwd', {name!r})",
    "folder": "import os; os.mkdir({name!r}); os.mkdir({name!r} + '/inside')",
}


def somebody(does: str, folder: Path) -> subprocess.Popen[str]:
    """Another user, who does this with the name of our socket."""
    text = does.replace("{name!r}", repr(str(folder / wire.DAEMON_NAME)))
    other: dict[str, Any] = {"user": 4242, "group": 4242, "extra_groups": [], "cwd": "/"}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(["/usr/bin/python3", "-I", "-c", text], text=True, **pipes, **other)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user serves only itself")
@pytest.mark.parametrize("what", list(TAKES))
async def test_nobody_takes_our_name_while_no_daemon_runs(folder, what) -> None:
    """Programs of all users would ask them, and end where they are answered wrongly."""
    endpoint = await DirectoryEndpoint.open(folder)
    await endpoint.close()
    _, said = somebody(TAKES[what], folder).communicate()
    assert "Address already in use" in said or "File exists" in said, said
    assert (folder / wire.DAEMON_NAME).stat().st_uid == 0

    async def opened() -> DirectoryEndpoint | None:
        with suppress(ModeOff):  # the process that has bound the first may have it open for another moment
            return await DirectoryEndpoint.open(folder)
        return None

    again = await comes(opened)
    assert not again.lost()
    await again.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user serves only itself")
@pytest.mark.parametrize("what", list(TAKES))
async def test_what_somebody_has_put_in_our_place_is_replaced(folder, what) -> None:
    folder.chmod(0o1733)  # as it was mounted
    with somebody(TAKES[what], folder) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == ("taken\n" if what == "socket" else "")
        endpoint = await DirectoryEndpoint.open(folder)
        assert not endpoint.lost()
        assert (folder / wire.DAEMON_NAME).lstat().st_uid == 0
        assert stat.S_ISSOCK((folder / wire.DAEMON_NAME).lstat().st_mode)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o1733
        other.communicate("\n")
    await endpoint.close()


async def test_what_is_no_socket_is_left_alone(folder) -> None:
    (folder / wire.DAEMON_NAME).write_text("mine")
    with pytest.raises(ModeOff, match="not a socket"):
        await DirectoryEndpoint.open(folder)
    assert (folder / wire.DAEMON_NAME).read_text() == "mine"


async def test_directories_that_cannot_serve(folder, tmp_path) -> None:
    with pytest.raises(ModeOff, match="too long"):
        await DirectoryEndpoint.open(folder / ("x" * 60))
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(ModeOff, match="cannot be used"):
        await DirectoryEndpoint.open(folder / "link")


def test_a_holders_child_is_not_the_holder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the descriptors, as what looks at processes has for a moment; its pid is lower once these begin anew."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(folder / "it"))
        child = [sys.executable, "-c", "input()"]
        with subprocess.Popen(child, stdin=subprocess.PIPE, pass_fds=[sock.fileno()]) as job:
            with monkeypatch.context() as lower:
                lower.setattr(os, "listdir", lambda path: [str(job.pid), str(os.getpid())])
                assert holders.holder(str(folder / "it")).startswith(f"pid {os.getpid()} (")
            job.communicate(b"\n")


async def test_address_taken_over_is_noticed_and_not_removed(folder) -> None:
    endpoint = await DirectoryEndpoint.open(folder)
    os.unlink(folder / wire.DAEMON_NAME)
    assert "gone" in endpoint.problem()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(folder / wire.DAEMON_NAME))
        assert f"taken over by pid {os.getpid()}" in endpoint.problem()
        await endpoint.close()
        assert (folder / wire.DAEMON_NAME).exists()


async def test_one_that_cannot_be_bound_anew_says_why(folder, endpoint) -> None:
    os.unlink(folder / wire.DAEMON_NAME)
    (folder / wire.DAEMON_NAME).mkdir()
    with pytest.raises(ModeOff, match="not a socket"):
        await endpoint.bind_anew()
    assert endpoint.lost()
    (folder / wire.DAEMON_NAME).rmdir()
    assert "not a socket" in endpoint.problem()
    await endpoint.bind_anew()
    assert (endpoint.lost(), endpoint.problem()) == (False, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user serves only itself")
async def test_closed_parent_is_said(folder) -> None:
    (folder / "p").mkdir(mode=0o700)
    own = await DirectoryEndpoint.open(folder / "p" / "own", every_user=False)
    assert own.problem() == ""
    await own.close()
    endpoint = await DirectoryEndpoint.open(folder / "p" / "k")
    assert endpoint.problem().endswith(f"chmod o+x {folder / 'p'}")
    (folder / "p").chmod(0o711)
    folder.chmod(0o711)
    assert endpoint.problem() == ""
    await endpoint.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user serves only itself")
async def test_everybody_makes_names_and_nobody_lists_them(folder) -> None:
    """Who lists a directory into memory of a file system of their own keeps its lock."""
    folder.chmod(0o1777)  # as it was made by an earlier one
    endpoint = await DirectoryEndpoint.open(folder)
    other: dict[str, Any] = {"user": 4242, "group": 4242, "extra_groups": [], "cwd": "/"}
    does = f"""
import os, socket
mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
mine.bind({str(folder / "mine")!r})
mine.sendto(b"ctxt", {str(folder / wire.DAEMON_NAME)!r})
try:
    os.open({str(folder)!r}, os.O_RDONLY)
except PermissionError:
    print("not listed")
"""
    said = subprocess.check_output(["/usr/bin/python3", "-I", "-c", does], text=True, **other)
    assert said == "not listed\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1733
    await endpoint.close()


async def test_sweep_removes_dead_clients_only(folder, endpoint) -> None:
    hour_ago = time.time() - 3600
    dead, young, alive = (KinetoClient(folder) for _ in range(3))
    plain = folder / f"{wire.CLIENT_PREFIX}file"
    plain.touch()
    for path in (dead.path, alive.path, plain):
        os.utime(path, (hour_ago, hour_ago))
    dead.close()
    young.close()
    assert await endpoint.sweep() == 1
    assert sorted(os.listdir(folder)) == sorted(
        [wire.DAEMON_NAME, plain.name, Path(young.path).name, Path(alive.path).name]
    )
    alive.close()


async def test_abstract_client(folder) -> None:
    endpoint = AbstractEndpoint.open(b"\0profd-test-" + uuid.uuid4().hex.encode() + b"\0")
    thread = SocketThread()
    thread.start([endpoint])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.bind(b"\0dynoconfigclient" + uuid.uuid4().hex.encode() + b"\0")
        client.settimeout(0.1)

        async def asked() -> bytes | None:
            client.sendto(wire.poll(3, 0, ()), endpoint.socket.getsockname())
            with suppress(TimeoutError):
                return await asyncio.to_thread(client.recv, 100)
            return None

        reply = await comes(asked)
        assert config_of(reply) == ""
        known = thread.get(me())
        assert known is not None
        assert known.peer.mode == "abstract"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as by_file:
        by_file.bind(str(folder / f"{wire.CLIENT_PREFIX}1"))
        by_file.sendto(wire.poll(3, 0, ()), endpoint.socket.getsockname())
        await dropped(thread, "address")
    thread.stop()
    await endpoint.close()


async def test_an_earlier_daemons_abstract_socket_is_used_with_what_waits_in_it() -> None:
    name = b"\0profd-test-" + uuid.uuid4().hex.encode() + b"\0"
    earlier = AbstractEndpoint.open(name)
    kept = earlier.socket.dup()
    await earlier.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.bind(b"\0dynoconfigclient" + uuid.uuid4().hex.encode() + b"\0")
        client.settimeout(PATIENCE)
        client.sendto(struct.pack("=Q32siiq", 16, b"ctxt", 0, 1, 0), name)  # answered however old it is
        endpoint = AbstractEndpoint.again(kept)
        thread = SocketThread()
        thread.start([endpoint])
        assert await asyncio.to_thread(client.recv, 100) == wire.context_reply(1)
    thread.stop()
    await endpoint.close()
    await AbstractEndpoint.open(name).close()  # and nobody else has it open


async def test_a_kept_socket_has_what_a_new_one_has() -> None:
    def options(sock: socket.socket) -> list[object]:
        said = [sock.getsockopt(socket.SOL_SOCKET, number) for number in (socket.SO_PASSCRED, SO_TIMESTAMPNS)]
        refused = sock.getsockopt(socket.SOL_SOCKET, 83) if refused_at_the_sender() else None
        return [*said, refused, sock.getblocking(), sock.get_inheritable()]

    fresh = AbstractEndpoint.open(b"\0profd-test-" + uuid.uuid4().hex.encode() + b"\0")
    kept = AbstractEndpoint.again(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    assert options(kept.socket) == options(fresh.socket)
    await kept.close()
    await fresh.close()


async def test_ended_processes_are_forgotten(polls, client, folder, monkeypatch) -> None:
    program = (
        "import socket,sys\n"
        "s=socket.socket(1,2); s.bind(sys.argv[1])\n"
        "s.sendto(bytes.fromhex(sys.argv[3]), sys.argv[2]); input()"
    )
    address = folder / f"{wire.CLIENT_PREFIX}{uuid.uuid4()}"
    arguments = [str(address), client.daemon, wire.poll(3, 0, ()).hex()]
    child = subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE)
    try:
        await eventually(polls.all)
        assert polls.all()[0].peer.id.pid == child.pid
    finally:
        child.kill()
        child.communicate()
    monkeypatch.setattr("profd.sources.kineto.registry.DEFAULT_PERIOD_NS", 0)
    assert polls.forget_ended() == 1
    assert polls.all() == []

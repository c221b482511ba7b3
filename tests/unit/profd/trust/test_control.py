"""The control socket, over real sockets."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profd.fairness.rates import Rate
from profd.kernel import nobody
from profd.kernel.peer import Peer, peer_of
from profd.limits import CONTROL_CONNECTIONS_BURST, CONTROL_CONNECTIONS_PER_UID_MAX
from profd.trust import control as module
from profd.trust.caller import Caller
from profd.trust.control import ControlServer
from profd.trust.identify import caller_of, start_ticks
from profd.trust.token import Tokens, Unidentified

from tests.support.people import CONNECT_AND_GO
from tests.support.waiting import eventually


class Control:
    """A served socket and what it denied."""

    def __init__(
        self, path: Path, only_uid: int | None = None, admin_group: str = "", rate: Rate = module._RATE
    ) -> None:
        self.path = path
        self.tokens = Tokens()
        self.denied: list[tuple[int, str]] = []
        self.refused: list[str] = []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(128)
        self.server = ControlServer(
            listener,
            self.tokens,
            Path("/run/x/profd.sock"),
            admin_group,
            only_uid,
            lambda caller, why: self.denied.append((caller.uid, why)),
            lambda kind, count: self.refused.extend([kind] * count),
            rate=rate,
        )
        self.server.open()

    async def close(self) -> None:
        """With the connections that the loop has yet to end."""
        self.server.close()
        waiting = self.server._waiting
        await eventually(lambda: not waiting._held and not waiting._reserve)


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def ask(path: Path) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(60)
        sock.connect(str(path))
        answer: dict[str, Any] = json.loads(sock.recv(65536))
        return answer


async def test_answer_names_the_caller(folder: Path) -> None:
    control = Control(folder / "c")
    answer = await asyncio.to_thread(ask, control.path)
    caller = control.tokens.verify(answer["token"])
    assert (caller.uid, caller.gid, caller.pid) == (os.getuid(), os.getgid(), os.getpid())
    assert caller.start_ticks == start_ticks(os.getpid()) > 0
    assert caller.admin == (os.getuid() == 0)
    assert answer["grpc"] == "/run/x/profd.sock"
    await control.close()


async def test_many_callers_at_once(folder: Path) -> None:
    control = Control(folder / "c")
    answers = await asyncio.gather(*(asyncio.to_thread(ask, control.path) for _ in range(50)))
    assert all("token" in answer for answer in answers)
    assert control.refused == []
    await control.close()


FLOOD = """
import os, socket, sys
os.setgid(4321); os.setuid(4321)
open_ = []
for _ in range(int(sys.argv[2])):
    open_.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)); open_[-1].connect(sys.argv[1])
print(sum(b"retry_s" in s.recv(65536) for s in open_[-10:]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_asks_too_often_at_once_is_told_so_and_nobody_else_is(folder: Path) -> None:
    control, go = Control(folder / "c"), threading.Event()
    control.server._names.submit(4321, go.wait)  # as a name service that does not answer
    count = str(CONTROL_CONNECTIONS_PER_UID_MAX + 10)
    command = [sys.executable, "-c", FLOOD, str(control.path), count]
    flood = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    said, _ = await flood.communicate()
    assert said == b"10\n"
    assert control.refused == ["tokens"] * 10
    mine = asyncio.create_task(asyncio.to_thread(ask, control.path))
    await eventually(lambda: control.server._waiting._reserve.total() == 1)
    go.set()
    assert "token" in await mine
    await control.close()


async def test_users_are_told_in_turn(folder: Path) -> None:
    control, go, told = Control(folder / "c"), threading.Event(), list[int]()
    for _ in range(3):
        control.server._names.submit(4321, go.wait)
    control.server._names.submit(4321, told.append, 4321)
    mine = asyncio.create_task(asyncio.to_thread(ask, control.path))
    identify = control.server._identify
    control.server._identify = lambda *peer: (told.append(0), identify(*peer))[1]  # type: ignore[method-assign]
    await eventually(lambda: control.server._waiting._reserve.total() == 1 or control.server._waiting._held)
    go.set()
    assert "token" in await mine
    assert told[0] == 0
    await control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_connects_and_goes_is_looked_at_seldom(folder: Path) -> None:
    control = Control(folder / "c")
    count = 20 * CONTROL_CONNECTIONS_BURST
    command = [sys.executable, "-c", CONNECT_AND_GO, str(control.path), str(count)]
    flood = await asyncio.create_subprocess_exec(*command)
    assert await flood.wait() == 0
    assert "token" in await asyncio.to_thread(ask, control.path)
    await eventually(lambda: "token_rate" in control.refused)
    await control.close()


TOO_OFTEN = """
import json, os, socket, sys
os.setgid(4321); os.setuid(4321)
said = set()
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(sys.argv[1])
        answer = json.loads(s.recv(65536))
        said.add(answer.get("error", ""))
print(json.dumps(sorted(said)))
"""


UNTIL_REFUSED_AND_GIVEN = """
import json, os, socket, sys
os.setgid(4321); os.setuid(4321)
ends = []
while ends[-2:] != ["error", "token"]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(sys.argv[1])
        answer = json.loads(s.recv(65536))
        ends.append("token" if "token" in answer else "error")
"""

ONE_WAITS_AND_OTHERS_ARE_TOLD = """
import os, socket, sys
os.setgid(4321); os.setuid(4321)
waits = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
waits.connect(sys.argv[1])
told = 0
for _ in range(20):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(sys.argv[1])
        told += b"yours are used up" in s.recv(65536)
print(told)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_comes_too_often_is_told_so(folder: Path) -> None:
    control = Control(folder / "c", rate=replace(module._RATE, per_second=0.001, burst=2))
    command = [sys.executable, "-c", TOO_OFTEN, str(control.path), "50"]
    flood = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    said, _ = await flood.communicate()
    served, refusal = json.loads(said)
    await eventually(lambda: control.refused == ["token_rate"] * 48)
    assert served == ""
    assert "yours are used up" in refusal
    # AND nobody else is
    assert "token" in await asyncio.to_thread(ask, control.path)
    await control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_where_there_is_one_again_it_is_given(folder: Path) -> None:
    control = Control(folder / "c", rate=replace(module._RATE, per_second=1000, burst=1))
    command = [sys.executable, "-c", UNTIL_REFUSED_AND_GIVEN, str(control.path)]
    asks = await asyncio.create_subprocess_exec(*command)
    assert await asks.wait() == 0
    await control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_while_the_event_loop_is_busy_who_comes_too_often_is_told_so(folder: Path) -> None:
    control = Control(folder / "c", rate=replace(module._RATE, per_second=0.001, burst=1))
    command = [sys.executable, "-c", ONE_WAITS_AND_OTHERS_ARE_TOLD, str(control.path)]
    said = subprocess.run(command, capture_output=True, check=True)  # and the loop does nothing meanwhile
    assert said.stdout == b"20\n"
    await control.close()


async def test_caller_that_leaves_at_once_harms_nobody(folder: Path) -> None:
    control = Control(folder / "c")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(control.path))
    assert "token" in await asyncio.to_thread(ask, control.path)
    await control.close()


AS_SOMEBODY_ELSE = """
import os, socket, sys
os.setgroups([7]); os.setgid(1234); os.setuid(4321)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(60)
s.connect(sys.argv[1]); print(s.recv(65536).decode()); sys.stdout.flush(); sys.stdin.read()
"""


def ask_as_somebody_else(path: Path) -> tuple[dict[str, Any], subprocess.Popen[str]]:
    """The answer, and the process that has it (its token is good while it lives)."""
    process = subprocess.Popen(
        [sys.executable, "-c", AS_SOMEBODY_ELSE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return json.loads(process.stdout.readline()), process


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_other_uid(folder: Path) -> None:
    control = Control(folder / "c")
    answer, process = await asyncio.to_thread(ask_as_somebody_else, control.path)
    try:
        caller = control.tokens.verify(answer["token"])
        assert (caller.uid, caller.gid, caller.groups, caller.admin) == (4321, 1234, (7,), False)
        assert caller.pid == process.pid
    finally:
        process.communicate()
    with pytest.raises(Unidentified, match="has ended"):
        control.tokens.verify(answer["token"])
    await control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_is_asked_about_while_the_admin_group_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user database may take seconds, and its answer is about the group of before."""
    control = Control(folder / "c", admin_group=grp.getgrgid(7).gr_name)
    found: list[Caller] = []

    def slow(sock: socket.socket, peer: Peer, group: str) -> Caller:
        found.append(caller_of(sock, peer, group))
        control.server.set_admin_group("")
        control.tokens.forget_admins()
        return found[-1]

    monkeypatch.setattr(module, "caller_of", slow)
    answer, process = await asyncio.to_thread(ask_as_somebody_else, control.path)
    try:
        assert [caller.admin for caller in found] == [True]
        assert not control.tokens.verify(answer["token"]).admin
    finally:
        process.communicate()
    await control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_connected_before_another_group_was_asked_for(folder: Path) -> None:
    control = Control(folder / "c")
    control.tokens.keep_members(8)
    answer, process = await asyncio.to_thread(ask_as_somebody_else, control.path)
    process.communicate()
    assert "token" not in answer
    assert "socket_group" in answer["error"]
    assert [uid for uid, _ in control.denied] == [4321]
    await control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_user_mode_serves_one_uid(folder: Path) -> None:
    control = Control(folder / "c", only_uid=0)
    answer, process = await asyncio.to_thread(ask_as_somebody_else, control.path)
    process.communicate()
    assert "token" not in answer
    assert "profd --user" in answer["error"]
    assert [uid for uid, _ in control.denied] == [4321]
    await control.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(("uid", "admin"), [(4321, True), (nobody.STREAMER, False)])
def test_admin_group_by_the_kernels_word(uid: int, admin: bool) -> None:
    member_of = grp.getgrgid(7).gr_name
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert caller_of(ours, peer_of(ours), member_of).admin  # root anyway
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"{name}/c")
            Path(f"{name}/c").chmod(0o666)
            listener.listen()
            process = subprocess.Popen(
                [sys.executable, "-c", AS_SOMEBODY_ELSE.replace("4321", str(uid)), f"{name}/c"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            connection, _ = listener.accept()
            with connection:
                found: list[Caller] = [
                    caller_of(connection, peer_of(connection), group) for group in (member_of, "", "no-such-group")
                ]
                connection.send(b"x")
            process.communicate()
    assert [caller.admin for caller in found] == [admin, False, False]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a pid namespace here")
def test_root_of_a_container_is_no_admin(folder: Path) -> None:
    """Nor whoever has the admin group there: root of it may take any. Whose process has ended is not known to be of the
    host.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "c"))
        listener.listen()
        connect = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])"
        command = [sys.executable, "-c", f"{connect}; s.recv(1)", str(folder / "c")]
        process = subprocess.Popen(["unshare", "--pid", "--fork", *command])
        connection, _ = listener.accept()
        with connection:
            caller = caller_of(connection, peer_of(connection), grp.getgrgid(os.getgid()).gr_name)
            connection.send(b"x")
            process.communicate()
            ended = caller_of(connection, peer_of(connection), "")
    assert (caller.uid, caller.admin, caller.container > 0) == (0, False, True)
    assert (ended.uid, ended.admin) == (0, False)

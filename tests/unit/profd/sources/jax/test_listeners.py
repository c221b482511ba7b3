"""Where a process listens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from profd.limits import JAX_PORTS_MAX
from profd.sources.jax import listeners
from profd.sources.jax.listeners import listening
from profd.targets.process import Process

from tests.support.captures import process
from tests.support.python_jobs import process_of, running

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LISTENER = """
import socket, sys
keep = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
print(keep.getsockname()[1], keep.fileno(), flush=True)
sys.stdin.read()
"""


class FakeProc:
    """A made-up /proc with one network."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows = {"tcp": "", "tcp6": ""}
        self.process_folder("self")

    def process_folder(self, name: str, *inodes: int, network: str = "net:[1]") -> None:
        folder = self.root / name
        (folder / "fd").mkdir(parents=True)
        (folder / "ns").mkdir()
        (folder / "ns" / "net").symlink_to(network)
        for number, inode in enumerate(inodes):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        (folder / "net").mkdir()

    def listens(self, table: str, local: str, inode: int, state: str = "0A", uid: int = 51000) -> None:
        number = self.rows[table].count("\n")
        self.rows[table] += f"{number:4}: {local} 0:0 {state} 0:0 00:0 0 {uid} 0 {inode} 1 x\n"

    def write(self, pid: int, ipv6: bool = True) -> None:
        net = self.root / str(pid) / "net"
        for table, rows in self.rows.items():
            (net / table).write_text(HEAD + rows)
        (net / "if_inet6").write_text("0" * 31 + "1 01 80 10 80 lo\n" if ipv6 else "")


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


JOB: Process = process(100, xla=True, ppid=1)


def addresses(proc: FakeProc) -> list[str]:
    return [listener.address for listener in listening(JOB, proc.root).listeners]


def test_loopback_and_any_are_reached_and_others_are_not(proc: FakeProc) -> None:
    proc.process_folder("100", *range(10, 20))
    proc.listens("tcp", "00000000:03E8", 10)
    proc.listens("tcp", "0100007F:03E9", 11)
    proc.listens("tcp", "0500007F:03EA", 12)
    proc.listens("tcp", "0101A8C0:03EB", 13)  # 192.168.1.1
    proc.listens("tcp", "00000000:03EC", 14, state="01")  # connected
    proc.listens("tcp", "00000000:03ED", 99)  # another process
    proc.listens("tcp6", "0" * 32 + ":03EE", 15)
    proc.listens("tcp6", "0" * 24 + "01000000:03EF", 16)
    proc.listens("tcp6", "0000000000000000FFFF00000100007F:03F0", 17)
    proc.write(100)
    assert addresses(proc) == [
        "ipv4:127.0.0.1:1000",
        "ipv4:127.0.0.1:1001",
        "ipv4:127.0.0.5:1002",
        "ipv6:[::1]:1006",
        "ipv6:[::1]:1007",
        "ipv4:127.0.0.1:1008",
    ]


def test_a_loopback_without_ipv6(proc: FakeProc) -> None:
    proc.process_folder("100", 10)
    proc.listens("tcp6", "0" * 32 + ":03E8", 10)
    proc.write(100, ipv6=False)
    assert addresses(proc) == ["ipv4:127.0.0.1:1000"]


def test_a_port_that_two_processes_share_is_nobodys(proc: FakeProc) -> None:
    proc.process_folder("100", 10)
    proc.listens("tcp6", "0" * 32 + ":03E8", 10)
    proc.listens("tcp6", "0" * 32 + ":03E8", 11)  # SO_REUSEPORT, which gRPC sets
    proc.write(100)
    found = listening(JOB, proc.root)
    assert (found.listeners, found.shared) == ((), (1000,))


def test_a_socket_of_another_user_is_not_its_own_whatever_number_it_has(proc: FakeProc) -> None:
    proc.process_folder("100", 10, 11)
    proc.listens("tcp", "0100007F:03E8", 10, uid=1001)
    proc.listens("tcp", "0100007F:03E9", 11)
    proc.write(100)
    found = listening(JOB, proc.root)
    assert (addresses(proc), found.shared) == (["ipv4:127.0.0.1:1001"], ())


def test_a_table_that_is_cut_among_those_that_listen_names_nobody(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process_folder("100", 10)
    proc.listens("tcp", "0100007F:03E8", 10)
    proc.write(100)
    size = (proc.root / "100" / "net" / "tcp").stat().st_size
    proc.listens("tcp", "0100007F:03E9", 99)
    proc.write(100)
    monkeypatch.setattr(listeners, "_TABLE_BYTES", size)
    found = listening(JOB, proc.root)
    assert (found.listeners, found.shared) == ((), (1000,))
    proc.listens("tcp", "0100007F:03E9", 99, state="01")
    proc.write(100)
    monkeypatch.setattr(listeners, "_TABLE_BYTES", (proc.root / "100" / "net" / "tcp").stat().st_size - 1)
    assert addresses(proc) == ["ipv4:127.0.0.1:1000"]  # those that are connected come last


def test_a_fork_does_not_answer_for_its_parent(proc: FakeProc) -> None:
    proc.process_folder("1", 10)
    proc.process_folder("100", 10, 11)
    proc.listens("tcp", "00000000:03E8", 10)
    proc.listens("tcp", "00000000:03E9", 11)
    proc.write(100)
    assert addresses(proc) == ["ipv4:127.0.0.1:1001"]


def test_another_network_is_said_and_not_asked(proc: FakeProc) -> None:
    proc.process_folder("100", 10, network="net:[2]")
    proc.listens("tcp", "00000000:03E8", 10)
    proc.write(100)
    found = listening(JOB, proc.root)
    assert found.other_network
    assert found.listeners == ()


def test_many_ports_and_hostile_lines(proc: FakeProc) -> None:
    proc.process_folder("100", *range(100))
    for inode in range(100):
        proc.listens("tcp", f"00000000:{1000 + inode:04X}", inode)
    proc.rows["tcp"] += (
        "x\n1: zz:zz 0 0A 0 0 0 0 0 5 1\n2: 00000000 0 0A 0 0 0 0 0 5 1\n3: zzzzzz7F:10 0 0A 0 0 0 0 0 5\n"
    )
    proc.write(100)
    assert len(listening(JOB, proc.root).listeners) == JAX_PORTS_MAX


def test_a_process_that_is_gone_listens_nowhere(tmp_path: Path) -> None:
    assert listening(JOB, tmp_path).listeners == ()


def test_a_real_process_and_its_fork() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, running(LISTENER) as job:
        assert job.stdout is not None
        port = int(job.stdout.readline().split()[0])
        found = listening(process_of(job))
        assert [one.address for one in found.listeners] == [f"ipv4:127.0.0.1:{port}"]
        assert len(found.listeners[0].sockets) == 1
        # A child that inherits our socket is not the one to ask.
        with subprocess.Popen(
            [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
            pass_fds=[ours.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            heir = replace(process_of(job), id=replace(process_of(job).id, pid=child.pid), ppid=os.getpid())
            assert listening(heir).listeners == ()
            child.kill()

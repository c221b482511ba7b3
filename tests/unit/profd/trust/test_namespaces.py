"""Pids of a container -> pids of the host, with real namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from profd.errors import Denied, NotFound
from profd.trust import namespaces
from profd.trust.caller import Caller
from profd.trust.namespaces import shares_pids, translate_pids


def caller(pid: int) -> Caller:
    return Caller(uid=0, gid=0, user="root", admin=True, pid=pid)


def test_same_namespace_changes_nothing() -> None:
    assert shares_pids(os.getpid())
    assert translate_pids(caller(os.getpid()), [1, 99999999]) == [1, 99999999]


def test_nothing_asked() -> None:
    assert translate_pids(caller(0), []) == []


@pytest.mark.parametrize("pid", [0, 1 << 30])
def test_unseen_caller_is_not_guessed_at(pid: int) -> None:
    assert not shares_pids(pid)
    with pytest.raises(Denied, match="cannot be read"):
        translate_pids(caller(pid), [1])


# The first process of a new namespace, with a child in it (pid 2 there) and a child in one below.
NESTED = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
inner = subprocess.Popen(
    ["unshare", "--pid", "--fork", sys.executable, "-c",
     "import sys; print('up', flush=True); sys.stdin.read()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
inner.stdout.readline()
print(child.pid, inner.pid, flush=True)
sys.stdin.read()
child.stdin.close(); inner.stdin.close(); child.wait(); inner.wait()
"""


@pytest.fixture
def container() -> Iterator[tuple[int, int, int]]:
    """(host pid of its first process, pid of a child there, pid of an `unshare` there)."""
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", NESTED]
    if shutil.which("unshare") is None or subprocess.run([*command[:3], "true"], capture_output=True).returncode:
        pytest.skip("pid namespaces cannot be made here")
    outside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert outside.stdout is not None
    try:
        child, inner = map(int, outside.stdout.readline().split())
        with open(f"/proc/{outside.pid}/task/{outside.pid}/children") as file:
            first = int(file.read())
        yield first, child, inner
    finally:
        outside.communicate()


def last_nspid(pid: int) -> list[int]:
    with open(f"/proc/{pid}/status") as file:
        return [int(word) for line in file if line.startswith("NSpid:") for word in line.split()[1:]]


def test_container(container: tuple[int, int, int]) -> None:
    first, child, inner = container
    assert not shares_pids(first)
    host_first, host_child, host_inner = translate_pids(caller(first), [1, child, inner])
    assert host_first == first
    assert last_nspid(host_child)[-1] == child
    assert last_nspid(host_inner)[-1] == inner


def test_container_below_the_callers(container: tuple[int, int, int]) -> None:
    """What runs in a container inside the caller's is named by the pid the caller sees."""
    first, _, inner = container
    (host_inner,) = translate_pids(caller(first), [inner])
    with open(f"/proc/{host_inner}/task/{host_inner}/children") as file:
        nested = int(file.read())
    outer, middle, innermost = last_nspid(nested)[-3:]
    assert (outer, innermost) == (nested, 1)
    assert translate_pids(caller(first), [middle]) == [nested]


def test_what_a_container_makes_is_that_container(container: tuple[int, int, int]) -> None:
    """Whoever is in one can make no other that lies beside it."""
    first, child, inner = container
    host_child, host_inner = translate_pids(caller(first), [child, inner])
    with open(f"/proc/{host_inner}/task/{host_inner}/children") as file:
        nested = int(file.read())
    assert os.stat(f"/proc/{nested}/ns/pid").st_ino != os.stat(f"/proc/{first}/ns/pid").st_ino
    inode = os.stat(f"/proc/{first}/ns/pid").st_ino
    assert [namespaces.container(pid) for pid in (first, host_child, host_inner, nested)] == [inode] * 4
    assert namespaces.container(os.getpid()) == 0
    with pytest.raises(OSError, match="No such"):
        namespaces.container(1 << 30)
    pids = (first, nested, os.getpid(), 1 << 30)
    assert [namespaces.of_container(pid, inode) for pid in pids] == [True, True, False, False]


def test_pid_that_is_not_in_the_container(container: tuple[int, int, int]) -> None:
    first, _, _ = container
    with pytest.raises(NotFound, match="999999"):
        translate_pids(caller(first), [1, 999999])

"""Processes of user namespaces that are not ours: whom the kernel lets look into them, and whom we do."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from profd.capture.planner import ManagerSettings, Planner
from profd.kernel.pidfd import is_dumpable
from profd.targets import procfs, user_namespaces
from profd.targets.identity import Accepted
from profd.targets.process import Process
from profd.targets.selector import Selector
from profd.targets.table import ProcessTable
from profd.targets.user_namespaces import Asker, UserNamespace

from tests.support.captures import ALICE, ROOT, FakeSource, FakeTable, FixedHeadroom, process, request
from tests.support.other_program import NOBODY, PYTHON
from tests.support.python_jobs import process_of
from tests.support.waiting import until

ALL = (1 << 41) - 1
BIND = 1 << 10

# Becomes nobody in a namespace of root's, there root or a user without any capability, and sleeps.
_WITHIN = """
import ctypes, os, sys
ctypes.CDLL(None).unshare(0x10000000)
print("unshared", flush=True)
input()
uid = int(sys.argv[1])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
os.execv(sys.argv[2], sys.argv[2:])
"""
# Not dumpable from a signal on.
_HIDES = """
import ctypes, signal
signal.signal(signal.SIGUSR1, lambda *_: ctypes.CDLL(None).prctl(4, 0, 0, 0, 0))
print("ready", flush=True)
while True:
    signal.pause()
"""
_MAP = f"0 {NOBODY} 1\n1 {NOBODY - 1} 1\n"

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nsenter") is None, reason="making a user namespace of root's takes root"
)


@contextlib.contextmanager
def of_root(inner: int, *program: str) -> Iterator[Process]:
    """`program`: of everybody's, instead of one that sleeps; it says a line when it is ready."""
    asked = program or (str(shutil.which("sleep")), "1000")
    begun = [sys.executable, "-c", _WITHIN, str(inner), *asked]
    job = subprocess.Popen(begun, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stdout.readline() == b"unshared\n"
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{job.pid}/{name}").write_text(_MAP)
        job.stdin.write(b"\n")
        job.stdin.flush()
        if program:
            assert job.stdout.readline() == b"ready\n"
        else:
            until(lambda: process_of(job).name == "sleep", "it sleeps")
        yield process_of(job)
    finally:
        job.kill()
        job.communicate()


def may_look(process: Process, within: Sequence[str] = ()) -> bool:
    """Whether the kernel lets a process of its user."""
    as_user = ("setpriv", "--reuid", str(process.uid), "--regid", str(process.uid), "--clear-groups")
    look = [*(within or as_user), "cat", f"/proc/{process.id.pid}/environ"]
    return subprocess.run(look, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def beside(process: Process, inner: int, *less: str) -> Iterator[tuple[Asker | None, list[str]]]:
    """A process of the same namespace; and how it is begun. `less`: a command that takes rights away."""
    begun = [
        "nsenter",
        "--user",
        "--target",
        str(process.id.pid),
        "--setuid",
        str(inner),
        "--setgid",
        str(inner),
        *less,
    ]
    job = subprocess.Popen([*begun, "sleep", "1000"])
    try:
        until(lambda: process_of(job).name == "sleep", "it sleeps")
        yield user_namespaces.asker(job.pid), begun
    finally:
        job.kill()
        job.wait()


@needs_root
@pytest.mark.parametrize("inner", [0, 1], ids=["with its capabilities", "with none"])
def test_in_a_namespace_of_roots(inner: int) -> None:
    with of_root(inner) as process, contextlib.closing(Accepted(process.id, process.uid)) as accepted:
        assert (process.uid, process.private) == (NOBODY - inner, False)
        assert process.user_namespace is not None
        # From outside neither the kernel nor we let its user look.
        assert not may_look(process)
        assert not process.user_namespace.opens_to(process.uid, None)
        assert not process.user_namespace.opens_to(process.uid, user_namespaces.asker(os.getpid()))
        assert accepted.private()
        # From inside both do.
        with beside(process, inner) as (asker, begun):
            assert asker is not None
            assert may_look(process, begun)
            assert process.user_namespace.opens_to(process.uid, asker)
            assert not accepted.private(asker)
            if process.user_namespace.capabilities:
                assert not process.user_namespace.opens_to(process.uid, replace(asker, capabilities=0))


@needs_root
@pytest.mark.skipif(is_dumpable(os.getpid()) is None, reason="takes a kernel that says who is dumpable (Linux 6.16)")
@pytest.mark.skipif(PYTHON is None, reason="takes a Python that nobody may run")
def test_one_that_is_not_dumpable_whose_user_is_root_there() -> None:
    """GIVEN a container in which a user is root, without CAP_SYS_PTRACE WHEN a process of that user asks for another
    one that has forbidden it THEN it is refused, as by the kernel, although the files of both are that user's."""
    fewer = (str(shutil.which("setpriv")), "--bounding-set", "-sys_ptrace")
    with (
        of_root(0, *fewer, str(PYTHON), "-I", "-c", _HIDES) as process,
        contextlib.closing(Accepted(process.id, process.uid)) as seen,
        beside(process, 0, *fewer) as (asker, begun),
    ):
        table = ProcessTable()
        before = table.get(process.id.pid)
        assert may_look(process, begun)
        assert not seen.private(asker)
        os.kill(process.id.pid, signal.SIGUSR1)
        until(lambda: not may_look(process, begun), "it is not dumpable")
        assert procfs.files_of(process.id.pid) == process.uid
        assert not seen.same
        now = table.get(process.id.pid)
        assert before is not None
        assert now is not None
        assert now.user_namespace is not None
        with (
            contextlib.closing(Accepted(process.id, process.uid)) as accepted,
            beside(process, 0) as (tracer, as_tracer),
        ):
            assert accepted.private(asker)
            assert not now.user_namespace.opens_to(process.uid, asker)
            assert may_look(process, as_tracer)
            assert not accepted.private(tracer)


@needs_root
def test_in_a_namespace_of_its_users() -> None:
    who = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    job = subprocess.Popen([*who, "unshare", "--user", "--map-root-user", "unshare", "--user", "sleep", "1000"])
    try:
        until(lambda: process_of(job).name == "sleep", "it sleeps")
        process = process_of(job)
        assert process.user_namespace is not None
        assert [owner for _, owner in process.user_namespace.levels] == [NOBODY, NOBODY]
        assert may_look(process)
        assert process.user_namespace.opens_to(NOBODY, None)
        with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
            assert not accepted.private()
    finally:
        job.kill()
        job.wait()


def test_in_ours() -> None:
    assert user_namespaces.of(os.getpid(), ALL, procfs.link(f"/proc/{os.getpid()}/ns/user"), True) is None
    assert user_namespaces.of(os.getpid(), ALL, "", True) is None


@pytest.mark.parametrize(
    ("levels", "asker", "opens"),
    [
        (((7, 1000),), None, True),
        (((7, 0),), None, False),
        (((8, 1000), (7, 0)), None, False),  # the user's own, within a container of root's
        (((8, 1000), (7, 0)), Asker(7, 0), True),
        (((8, 0), (7, 0)), Asker(7, 0), False),
        (((8, 0), (7, 0)), Asker(7, ALL), True),
        (((7, 0),), Asker(7, BIND), True),
        (((7, 0),), Asker(7, 0), False),
        (((7, 0),), Asker(6, ALL), False),
        ((), None, False),
        ((), Asker(7, ALL), False),
    ],
)
def test_the_kernels_rule(levels: tuple[tuple[int, int], ...], asker: Asker | None, opens: bool) -> None:
    """Of a process of uid 1000 with one capability."""
    assert UserNamespace(levels, BIND).opens_to(1000, asker) is opens


@pytest.mark.parametrize("owner", [0, ALICE.uid])
async def test_whoever_asks_learns_of_it_what_the_kernel_lets_them_see(owner: int) -> None:
    table = FakeTable([process(100, job="77", user_namespace=UserNamespace(((7, owner),), ALL))])
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})
    shut = owner != ALICE.uid
    for caller, unrestricted in ((ALICE, False), (ROOT, True)):
        [plan] = await planner.estimate(caller, request(100))
        [sighting] = await planner.targets(caller, Selector())
        assert plan.process is not None
        for seen in (plan.process, sighting.process):
            assert (seen.private, seen.unrestricted) == (shut, unrestricted)
            assert seen.job == ("" if shut and not unrestricted else "77")


async def test_a_caller_inside_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = process(100, user_namespace=UserNamespace(((7, 0),), ALL))
    planner = Planner([FakeSource()], FakeTable([found]), FixedHeadroom(), ManagerSettings("host"), {})
    monkeypatch.setattr(user_namespaces, "asker", lambda pid: Asker(7, ALL) if pid == 5 else None)
    for pid, private in ((5, False), (6, True)):
        [plan] = await planner.estimate(replace(ALICE, pid=pid), request(100))
        assert plan.process is not None
        assert plan.process.private is private

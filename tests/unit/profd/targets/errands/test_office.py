"""Single questions about files of processes, answered by what can be given up."""

from __future__ import annotations

import os
import select
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from profd.limits import PROC_WAIT_SECONDS, PROC_WAIT_SECONDS_PER_UID
from profd.observers import torch_of
from profd.sources.pyspy import confinement
from profd.targets import mapped, procfs
from profd.targets.errands import calls, office, work
from profd.targets.errands.child import NoAnswer, Unanswered
from profd.targets.errands.office import Errands
from profd.targets.table import ProcessTable

from tests.support import bpf
from tests.support.dead_files import dead_files, why_not
from tests.support.python_jobs import seen
from tests.support.waiting import PATIENCE_SECONDS, until

needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())
MALLORY = 61301
LIBRARY = "torch/lib/libtorch_cpu.so"
# Maps it, from where it lies.
MAPS = f"""
library = os.open("{LIBRARY}", os.O_RDONLY)
mapped = mmap.mmap(library, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
"""


@pytest.fixture
def errands(monkeypatch: pytest.MonkeyPatch) -> Iterator[Errands]:
    """Fresh ones, which remember nobody, for all who ask."""
    found = Errands()
    for module in (mapped, torch_of, confinement):
        monkeypatch.setattr(module, "errands", found)
    monkeypatch.setattr(office, "ERRANDS_STUCK_SECONDS", 0.0)
    yield found
    found.close()


def own() -> Path:
    return Path("/proc", str(os.getpid()))


def test_a_process_is_used_again(errands: Errands) -> None:
    for _ in range(3):
        assert errands.once(own(), "same_root", bytes(own() / "root")) is True
    assert errands.statistics() == {"processes": 1, "stuck": 0}


def test_its_processes_are_told_for_lists_that_leave_them_out(errands: Errands) -> None:
    assert errands.pids == []
    errands.once(own(), "exists", b"/", 0, [])
    server, child = errands.pids
    assert [psutil.Process(pid).ppid() for pid in (server, child)] == [os.getpid(), server]
    errands.close()
    assert errands.pids == []


def test_what_the_kernel_refuses_is_said(errands: Errands) -> None:
    with pytest.raises(FileNotFoundError):
        errands.once(own(), "same_root", b"/proc/0/root")


@pytest.mark.parametrize("question", [("nothing",), ("same_root",), ("same_root", 7), ("look", 3, b"x")])
def test_a_question_that_is_none_harms_nobody(errands: Errands, question: tuple[object, ...]) -> None:
    with pytest.raises(OSError, match=r"Error|KeyError"):
        errands.once(own(), *question)
    assert errands.once(own(), "exists", b"/", 0, []) is True


def test_one_that_was_killed_meanwhile_has_a_successor(errands: Errands) -> None:
    assert errands.once(own(), "exists", b"/", 0, []) is True
    server = errands._server
    assert server is not None
    server.kill()
    server.wait()
    child = next(iter(errands._idle.values()))
    until(child.gone, "it ends with what has made it")
    assert errands.once(own(), "exists", b"/", 0, []) is True


def test_an_answer_that_comes_while_its_process_is_looked_at_is_taken(
    errands: Errands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host the caller's turn comes late: after the timeout, and when the process already waits again."""
    assert errands.once(own(), "exists", b"/", 0, []) is True
    [child] = errands._idle.values()
    os.kill(child.pid, signal.SIGSTOP)

    def looks_late(pid: int) -> procfs.Stat | None:
        os.kill(pid, signal.SIGCONT)
        assert select.select([child._conversation], [], [], PATIENCE_SECONDS)[0]
        until(lambda: (found := stat_of(pid)) is not None and found.state == "S", "it waits for the next question")
        return stat_of(pid)

    stat_of = procfs.stat_of
    monkeypatch.setattr(procfs, "stat_of", looks_late)
    assert child.ask(["exists", b"/", 0, []], 0.01) is True
    assert not child.given_up


def test_a_process_that_waits_and_has_not_answered_is_given_up(errands: Errands) -> None:
    assert errands.once(own(), "exists", b"/", 0, []) is True
    [child] = errands._idle.values()
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(Unanswered, match="does not answer"):
        child.ask(["exists", b"/", 0, []], 0.01)
    assert child.given_up


@needs_fuse
def test_a_version_on_a_dead_disk_is_unknown_and_the_process_is_listed(errands: Errands) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,  # where its user may go
        dead_files(Path(name), MALLORY, "OPEN:version.py", does=MAPS) as dead,
    ):
        found = {process.id.pid: process for process in ProcessTable().snapshot()}
        assert (found[dead.pid].framework, found[dead.pid].torch_version) == ("torch", "")
        # The same where its observer is wanted, which is told
        with pytest.raises(torch_of.Elsewhere):
            torch_of.look(found[dead.pid])
        # THEN others are asked about, and its user's processes are waited for no more
        assert errands.once(own(), "exists", b"/", 0, []) is True
        assert errands._patience.allowed(dead.pid, MALLORY, PROC_WAIT_SECONDS) == 0
        # On a busy host that is of some seconds ago, and forgotten.
        assert errands._patience._waited.get(MALLORY, 0.0) <= 2 * PROC_WAIT_SECONDS_PER_UID
        with pytest.raises(NoAnswer):
            errands.once(dead.root.parent, "exists", b"/", 0, [])


@needs_fuse
def test_a_version_on_a_disk_that_answers_is_told(errands: Errands) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        dead_files(Path(name), MALLORY, does=MAPS) as alive,
    ):
        process = seen(alive.pid)
        assert (process.framework, process.torch_version) == ("torch", "2.13.0")


@needs_fuse
def test_a_sampler_of_what_lies_on_a_dead_disk_is_begun(errands: Errands, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where its user may go: all but what does not answer is reached.
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        dead_files(Path(name), MALLORY, "LOOKUP:libpython.so") as dead,
    ):
        Path(name).chmod(0o755)
        process = seen(dead.pid)
        line = f"7f0-7f1 r-xp 00000000 08:01 4242       {dead.folder}/libpython.so\n".encode()
        monkeypatch.setattr("profd.sources.pyspy.confinement.procfs.read", lambda path, limit: line)
        assert not confinement.confine(replace(process, uid=MALLORY, gid=MALLORY), native=False).warden


def test_a_sampler_is_told_nothing_of_what_its_user_cannot_see() -> None:
    """Which others see by its warden: there is one where a library cannot be opened."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder, shut = Path(name), Path(name, "shut")
        folder.chmod(0o755)
        shut.mkdir()
        for path in (shut / "it", folder / "own", folder / "private"):
            path.touch(0o644)
        (folder / "private").chmod(0o600)
        shut.chmod(0o700)
        (folder / "link").symlink_to(shut)

        def reached(path: bytes) -> bool:
            [_, answer] = work.reachable(os.fsencode(name), [path], 1000, 1000)
            return bool(answer)

        assert [reached(path) for path in (b"/own", b"/private")] == [True, False]
        assert [reached(path) for path in (b"/shut/it", b"/shut/none")] == [False, False]
        assert [reached(path) for path in (b"/link/it", b"/link/none")] == [True, True]


# socket connect socketpair clone fork execve kill ptrace setuid mount unshare execveat clone3 io_uring_setup bpf
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize("number", [41, 42, 53, 56, 57, 59, 62, 101, 105, 165, 272, 322, 435, 425, 321])
def test_what_no_errand_needs_does_not_exist_for_it(number: int) -> None:
    assert bpf.answer(calls.program(), "x86_64", number) == bpf.ENOSYS

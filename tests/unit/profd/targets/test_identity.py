"""What an accepted process may do, and what makes it another one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.targets import identity, procfs
from profd.targets.errands.directory import Directory
from profd.targets.identity import Accepted, Standing
from profd.targets.pickup import NotTaken, Refusal
from profd.targets.process import Process, ProcessId

from tests.support import other_program
from tests.support.other_program import NOBODY, Target, needs_setuid
from tests.support.python_jobs import process_of, running
from tests.support.waiting import until

TOLD = """
import ctypes, os, sys, threading
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@contextlib.contextmanager
def accepted(process: Process) -> Iterator[Accepted]:
    with contextlib.closing(Accepted(process.id, process.uid)) as found:
        assert found.hold() == found.hold() == ""
        yield found


def tell(job: subprocess.Popen[bytes], line: str) -> None:
    assert job.stdin is not None
    assert job.stdout is not None
    job.stdin.write(f"{line}\n".encode())
    job.stdin.flush()
    assert job.stdout.readline() == b"done\n"


@pytest.fixture
def target() -> Iterator[Target]:
    with other_program.target() as found:
        yield found


def test_a_look_that_nobody_answers_ends_no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN an accepted process WHEN the host has no core for one look, or for the first THEN it is asked again."""
    with running(TOLD) as job, accepted(process_of(job)) as found:
        monkeypatch.setattr(identity, "_look", lambda *_: None)
        assert (found.standing(), found.silent) == (Standing.CHANGED, True)
        with contextlib.closing(Accepted(found.process, found.uid)) as first:
            assert (first.standing(), first.silent) == (Standing.CHANGED, True)
            monkeypatch.undo()
            assert (found.standing(), found.silent) == (Standing.SAME, False)


AMBIENT = ("--inh-caps", "+net_raw", "--ambient-caps", "+net_raw")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="giving capabilities takes root")
@pytest.mark.parametrize(
    ("rights", "program", "private"),
    [((), (), False), (AMBIENT, (), True), ((), ("unshare", "--user", "--map-root-user"), False)],
    ids=["none", "a service's", "within its own user namespace"],
)
def test_capabilities_that_its_user_lacks(rights: tuple[str, ...], program: tuple[str, ...], private: bool) -> None:
    """The kernel keeps its user from looking into it, though it has one user's ids and is dumpable."""
    who = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
    job = subprocess.Popen([*who, *rights, *program, "sleep", "1000"])
    try:
        until(lambda: procfs.name_of(job.pid, job.pid) == "sleep", "it sleeps")
        process = process_of(job)
        assert process.uid == NOBODY
        assert process.private is private
        with accepted(process) as found:
            assert found.private() is private
            assert found.standing() is Standing.SAME
    finally:
        job.kill()
        job.wait()


def test_what_a_program_does_leaves_it_the_same() -> None:
    with running(TOLD) as job, accepted(process_of(job)) as found:
        for line in (
            "threading.Thread(target=threading.Event().wait, daemon=True).start()",
            "kept = [bytearray(1 << 20) for _ in range(64)]",
            "child = os.fork() or os._exit(0); os.waitpid(child, 0)",
            "os.posix_spawn('/bin/true', ['true'], {})",
            "ctypes.CDLL(None).prctl(15, b'other name', 0, 0, 0)",
            "os.chdir('/'); os.nice(1)",
        ):
            tell(job, line)
            assert found.same, line


def test_it_ends() -> None:
    with running(TOLD) as job:
        found = Accepted(process_of(job).id, os.getuid())
        found.hold()
        job.kill()
        until(lambda: found.standing() is not Standing.SAME, "its end")  # a zombie: nobody has waited for it
        assert found.standing() is Standing.ENDED
        assert "has ended" in found.moved_on()
    assert found.standing() is Standing.ENDED
    found.close()
    found.close()
    assert found.hold() == ""


def test_it_had_ended() -> None:
    with running(TOLD) as job:
        gone = process_of(job)
    for process in (gone.id, ProcessId(os.getpid(), 1)):
        with contextlib.closing(Accepted(process, os.getuid())) as found:
            assert found.standing() is Standing.ENDED
            assert found.hold() == ""


def test_exec_by_its_own_user() -> None:
    with running(TOLD) as job, accepted(process_of(job)) as found:
        assert found.same
        assert job.stdin is not None
        job.stdin.write(b"os.execv(sys.executable, [sys.executable, '-c', 'print(0, flush=True); input()'])\n")
        job.stdin.flush()
        assert job.stdout is not None
        assert job.stdout.readline() == b"0\n"
        assert process_of(job).id == found.process
        assert found.standing() is Standing.CHANGED
        assert "another program" in found.moved_on()


@pytest.mark.skipif(shutil.which("setarch") is None, reason="needs util-linux")
def test_exec_where_the_layout_is_always_the_same() -> None:
    again = "import os, sys; print('ready', flush=True); input(); os.execv(sys.executable, sys.orig_argv)"
    command = ["setarch", "-R", sys.executable, "-c", again]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdout.readline()
        layouts = []
        for _ in range(2):  # setarch names the program in other words than it does itself
            stat = procfs.stat_of(job.pid)
            assert stat is not None
            layouts.append(stat.layout)
            with accepted(process_of(job)) as found:
                assert found.same
                job.stdin.write(b"\n")
                job.stdin.flush()
                job.stdout.readline()
                assert found.standing() is Standing.CHANGED
        stat = procfs.stat_of(job.pid)
        assert stat is not None
        assert layouts[-1] == stat.layout
        job.kill()


@needs_setuid
def test_exec_of_a_setuid_program(target: Target) -> None:
    with accepted(target.process()) as found:
        assert found.uid == NOBODY
        target.say("setuid")
        assert target.process().id == found.process
        assert target.process().uid == 0
        assert found.standing() is Standing.CHANGED


@needs_setuid
@pytest.mark.parametrize("word", ["setuid", "exec"])
def test_another_process_keeps_the_memory(target: Target, word: str) -> None:
    """Then the kernel still reads from what was opened: it says only that somebody has that memory."""
    with accepted(target.process()) as found:
        target.say("sibling")
        assert found.same
        with open(f"/proc/{target.job.pid}/mem", "rb", 0) as memory:
            (line, *_) = Path(f"/proc/{target.job.pid}/maps").read_text().splitlines()
            address = int(line.split("-")[0], 16)
            target.say(word)
            assert os.pread(memory.fileno(), 1, address)
        assert found.standing() is Standing.CHANGED


@needs_setuid
def test_exec_before_it_is_held(target: Target) -> None:
    process = target.process()
    with contextlib.closing(Accepted(process.id, process.uid)) as found:
        target.say("exec")
        assert found.hold() == ""
        assert found.standing() is Standing.CHANGED


@needs_setuid
def test_exec_before_it_is_accepted(target: Target) -> None:
    process = target.process()
    target.say("setuid")
    with contextlib.closing(Accepted(process.id, process.uid)) as found:
        assert found.standing() is Standing.CHANGED


@needs_setuid
async def test_a_directory_is_opened_in_no_other_program(target: Target) -> None:
    with accepted(target.process()) as found:
        opened = await Directory.of(found, "/tmp")
        assert isinstance(opened, Directory)
        opened.close()
        target.say("setuid")
        refused = await Directory.of(found, "/tmp")
    assert isinstance(refused, NotTaken)
    assert refused.code is Refusal.OTHER_PROGRAM


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
@pytest.mark.parametrize(
    "line",
    [
        f"os.setresuid({NOBODY}, {NOBODY}, {NOBODY})",
        f"os.setresuid(-1, {NOBODY}, -1)",
        f"os.setresgid({NOBODY}, {NOBODY}, {NOBODY})",
    ],
)
def test_other_rights(line: str) -> None:
    with running(TOLD) as job, accepted(process_of(job)) as found:
        tell(job, line)
        assert found.standing() is Standing.CHANGED
        tell(job, "os.setresuid(-1, 0, -1)" if "-1" in line else "0")
        assert found.standing() is Standing.CHANGED  # once is for ever


@needs_setuid
def test_not_dumpable_any_more() -> None:
    own = (
        "import ctypes; print('ready', flush=True); input(); ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(flush=True)"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "user": NOBODY}
    with subprocess.Popen([str(other_program.PYTHON), "-c", own + "; input()"], **pipes) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdout.readline()
        with accepted(process_of(job)) as found:
            assert found.same
            job.stdin.write(b"\n")
            job.stdin.flush()
            job.stdout.readline()
            assert found.standing() is Standing.CHANGED
        job.kill()


@needs_setuid
def test_without_the_right_nothing_is_held() -> None:
    """As in a container without CAP_SYS_PTRACE: root's own process, looked at by nobody."""
    ended = os.fork()
    if not ended:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with contextlib.closing(Accepted(ProcessId(os.getppid(), _start_ticks(os.getppid())), 0)) as found:
            why, opened = found.hold(), asyncio.run(Directory.of(found, "/tmp"))
            refused = isinstance(opened, NotTaken) and opened.message == why and "CAP_SYS_PTRACE" in why
            os._exit(0 if found.same and refused else 1)
    assert os.waitpid(ended, 0)[1] == 0


def _start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class _CloneArguments(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child", "parent", "exit", "stack", "size", "tls", "tid", "ids")
    )


def _fork_as(pid: int) -> int:
    """A child with this pid that waits to be killed (clone3's set_tid)."""
    wanted = ctypes.c_int(pid)
    arguments = _CloneArguments(exit=signal.SIGCHLD, tid=ctypes.addressof(wanted), ids=1)
    found = ctypes.CDLL(None, use_errno=True).syscall(435, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if found == 0:
        signal.pause()
        os._exit(0)
    return int(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose a pid")
def test_a_pid_is_used_again_within_a_tick() -> None:
    first = os.fork()
    if not first:
        signal.pause()
        os._exit(0)
    with contextlib.closing(Accepted(ProcessId(first, _start_ticks(first)), 0)) as found:
        assert found.same
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        again = _fork_as(first)
        if again < 0:
            pytest.skip("this kernel lets nobody choose a pid")
        try:
            # A busy machine needs longer than a tick (10 ms): the first is said to have begun in that of the second.
            found.process = ProcessId(first, _start_ticks(again))
            found._first = identity._look(again, found._pidfd)
            assert (again, found.standing()) == (first, Standing.ENDED)
        finally:
            os.kill(again, signal.SIGKILL)
            os.waitpid(again, 0)

"""The process table: on a made-up /proc, and on the real one."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profd import _host
from profd.errors import Exhausted, NotFound
from profd.targets import guarded, procfs
from profd.targets import look_rate as look_rate_module
from profd.targets import table as table_module
from profd.targets.errands.child import NoAnswer
from profd.targets.errands.office import errands
from profd.targets.process import Process, ProcessId
from profd.targets.remembered import Remembered
from profd.targets.table import ProcessTable

from tests.support import other_program
from tests.support.other_program import NOBODY, PYTHON, needs_setuid
from tests.support.python_jobs import UNTIL_TOLD, process_of, running, seen
from tests.support.waiting import until
from tests.unit.profd.targets.proc_tree import Fake

SITE = "/env/lib/python3.11/site-packages"


def test_everything_of_a_training_process(tmp_path: Path) -> None:
    fake = Fake(
        tmp_path,
        300,
        ppid=10,
        namespace_pids="300\t7",
        command=["python3", "train.py", "--lr", "1\x1b"],
        environ={"RANK": "5", "CUDA_VISIBLE_DEVICES": "2,3", "HOME": "/root", "KINETO_USE_DAEMON": "1"},
        maps=[f"{SITE}/torch/lib/libtorch_cpu.so", "/usr/lib/libcuda.so.1", "/usr/bin/python3.11"],
        cgroup="0::/system.slice/slurmstepd.scope/job_77/step_0\n",
        descriptors={3: "/dev/nvidia2", 4: "/dev/nvidiactl", 5: "/dev/nvidia0", 6: "/tmp/x"},
    ).write()
    package = fake.folder / "root" / SITE.lstrip("/") / "torch"
    package.mkdir(parents=True)
    (package / "version.py").write_text("__version__ = '2.13.0'\n")
    (process,) = ProcessTable(tmp_path).snapshot()
    assert process.id == ProcessId(300, 1000)
    assert (process.ppid, process.uid, process.gid) == (10, 1000, 1000)
    assert process.command == "python3 train.py --lr 1\N{REPLACEMENT CHARACTER}"
    assert process.environ == {"RANK": "5", "CUDA_VISIBLE_DEVICES": "2,3", "KINETO_USE_DAEMON": "1"}
    assert (process.rank, process.job, process.gpus) == (5, "77", (2,))
    assert (process.framework, process.torch_version, process.cuda) == ("torch", "2.13.0", True)
    assert process.python
    assert process.namespace_pids == (300, 7)
    assert not process.stopped
    assert not process.zombie


def test_the_version_behind_a_disk_that_did_not_answer_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a process that stays as it is, and whose disk answers when it is asked for the third time
    fake = Fake(tmp_path, 300, command=["python3"], maps=[f"{SITE}/torch/lib/libtorch_cpu.so"]).write()
    package = fake.folder / "root" / SITE.lstrip("/") / "torch"
    package.mkdir(parents=True)
    (package / "version.py").write_text("__version__ = '2.13.0'\n")
    asked: list[str] = []
    once = errands.once

    def late(folder: Path, *question: Any) -> Any:
        asked.append(folder.name)
        if len(asked) < 3:
            raise NoAnswer("files of its user did not answer some seconds ago")
        return once(folder, *question)

    monkeypatch.setattr(errands, "once", late)
    table = ProcessTable(tmp_path)
    # WHEN it is listed THEN what else is known is remembered, and the version comes once it can be had
    assert [table.snapshot()[0].torch_version for _ in range(4)] == ["", "", "2.13.0", "2.13.0"]
    assert asked == ["300"] * 3


SERVICE: dict[str, Any] = {
    "uids": "12345\t12345\t12345\t12345",  # whose files are not that user's: it is not dumpable
    "command": ["python3", "serve.py", "--key", "k"],
    "environ": {"RANK": "5", "SLURM_JOB_ID": "77", "CUDA_VISIBLE_DEVICES": "2", "KINETO_USE_DAEMON": "1"},
    "maps": [f"{SITE}/torch/lib/libtorch_cpu.so", "/usr/lib/libcuda.so.1"],
    "descriptors": {3: "/dev/nvidia2"},
}


def test_of_a_private_process_its_user_sees_its_name(tmp_path: Path) -> None:
    Fake(tmp_path, 300, name="serve", **SERVICE).write()
    table = ProcessTable(tmp_path)
    (process,) = table.snapshot()
    assert process.private
    assert (process.rank, process.job, process.gpus, process.framework) == (5, "77", (2,), "torch")
    names: dict[str, Any] = {"command": "[serve]", "name": "serve", "framework": "python", "python": True}
    public = Process(process.id, 1, 12345, 12345, "12345", namespace_pids=(300,), private=True, **names)
    assert table.as_its_user_sees(process) == public
    # AND of one that is not, everything
    assert table.as_its_user_sees(open_one := replace(process, private=False)) == open_one


def test_of_a_private_process_its_user_sees_what_it_says_of_itself(tmp_path: Path) -> None:
    Fake(tmp_path, 300, **SERVICE).write()
    table = ProcessTable(tmp_path, labelled=lambda process: replace(process, rank=9))
    (process,) = table.snapshot()
    seen = table.as_its_user_sees(process)
    assert (seen.rank, seen.job) == (9, "")


@pytest.mark.parametrize(("state", "stopped", "zombie"), [("T", True, False), ("t", True, False), ("Z", False, True)])
def test_states(tmp_path: Path, state: str, stopped: bool, zombie: bool) -> None:
    Fake(tmp_path, 5, state=state).write()
    (process,) = ProcessTable(tmp_path).snapshot()
    assert (process.stopped, process.zombie) == (stopped, zombie)
    assert ProcessTable(tmp_path).alive(process.id) is not zombie


def test_kernel_threads_and_other_entries_are_left_out(tmp_path: Path) -> None:
    Fake(tmp_path, 2, name="kthreadd", flags=0x00200000, command=[]).write()
    Fake(tmp_path, 30).write()
    (tmp_path / "sys").mkdir()
    (tmp_path / "40").mkdir()  # ended between listing and reading
    found = ProcessTable(tmp_path).snapshot()
    assert [process.id.pid for process in found] == [30]
    assert ProcessTable(tmp_path).get(2) is None
    assert ProcessTable(tmp_path).get(40) is None


def test_process_that_may_not_be_read(tmp_path: Path) -> None:
    # GIVEN another user's process: stat, status and cmdline are all that can be read
    fake = Fake(tmp_path, 6, command=["/usr/bin/python3.12", "-m", "x"], environ={"RANK": "1"}).write()
    for name in ("environ", "maps", "exe", "cgroup"):
        (fake.folder / name).unlink()
    (process,) = ProcessTable(tmp_path).snapshot()
    assert (process.framework, process.python, process.rank, process.executable) == ("python", True, None, "")


def test_process_without_a_command_line(tmp_path: Path) -> None:
    Fake(tmp_path, 6, name="odd", command=[], executable="/bin/odd").write()
    (process,) = ProcessTable(tmp_path).snapshot()
    assert (process.command, process.python) == ("[odd]", False)


def test_framework_that_is_imported_later_is_seen(tmp_path: Path) -> None:
    fake = Fake(tmp_path, 8).write()
    table = ProcessTable(tmp_path)
    assert table.snapshot()[0].framework == "python"
    fake.maps.append(f"{SITE}/torch/lib/libtorch_cpu.so")
    fake.vsize += 500 << 20
    fake.write()
    assert table.snapshot()[0].framework == "torch"


def test_idle_processes_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(tmp_path, 8, maps=["/usr/bin/python3"]).write()
    table = ProcessTable(tmp_path)
    first = table.snapshot()

    def fail(raw: bytes) -> None:
        raise AssertionError("the maps of an idle process were read again")

    monkeypatch.setattr(table_module, "parse_maps", fail)
    assert table.snapshot() == first


def test_what_is_remembered_is_recalled_without_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(tmp_path, 5, command=["python"], maps=["/usr/bin/python3.11"], vsize=100 << 20).write()
    table = ProcessTable(tmp_path)
    assert table.recall(5) is None  # nobody has looked yet
    known = table.get(5)
    monkeypatch.setattr(table_module.ProcessTable, "_look", lambda *_: pytest.fail("it looked"))
    with table._lock:  # nor does it wait for who looks at others
        assert table.recall(5) == known
        fake.vsize = 110 << 20
        fake.write()
        assert table.recall(5) == known
        fake.vsize = 164 << 20  # a framework, or CUDA
        fake.write()
        assert table.recall(5) is None
        assert table.recall(6) is None


def test_exec_and_reuse_of_a_pid(tmp_path: Path) -> None:
    fake = Fake(tmp_path, 8, name="sh", command=["sh"], executable="/bin/sh").write()
    table = ProcessTable(tmp_path)
    (before,) = table.snapshot()
    # WHEN it calls exec THEN it is the same process with another command
    fake.name, fake.command, fake.executable, fake.stack_base = "python3", ["python3"], "/usr/bin/python3", 1
    fake.write()
    (after,) = table.snapshot()
    assert (after.id, after.command, after.python) == (before.id, "python3", True)
    # WHEN the pid is used again THEN it is another one
    fake.start_ticks = 2000
    fake.write()
    assert not table.alive(before.id)
    assert table.alive(ProcessId(8, 2000))


def test_descendants(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 10), (13, 11), (14, 1)):
        Fake(tmp_path, pid, ppid=parent).write()
    table = ProcessTable(tmp_path)
    found = table.children(ProcessId(10, 1000))
    assert [process.id.pid for process in found] == [11, 12, 13]


def test_descendants_of_a_loop(tmp_path: Path) -> None:
    Fake(tmp_path, 10, ppid=11).write()
    Fake(tmp_path, 11, ppid=10).write()
    found = ProcessTable(tmp_path).children(ProcessId(10, 1000))
    assert [process.id.pid for process in found] == [11]


def test_oversized_files(tmp_path: Path) -> None:
    fake = Fake(tmp_path, 9, command=["x" * 100_000], environ={"RANK": "1" * 100_000}).write()
    fake.executable = "/bin/x"
    fake.write()
    (process,) = ProcessTable(tmp_path).snapshot()
    assert len(process.command) == 4096
    assert process.rank is None


def test_a_process_has_no_more_gpus_than_a_host(tmp_path: Path) -> None:
    held = {number: f"/dev/nvidia{number}" for number in range(3, 1003)}
    Fake(tmp_path, 9, maps=["/usr/lib/libcuda.so.1"], descriptors=held).write()
    (process,) = ProcessTable(tmp_path).snapshot()
    assert process.gpus == tuple(range(3, 67))


def test_texts_of_one_users_processes_are_not_remembered_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 16 KiB of the file and four times as much as a text, whatever its user has written into it."""
    monkeypatch.setattr(table_module, "Remembered", functools.partial(Remembered, each=1 << 20))
    for pid in range(100, 140):
        wide = "\U0001d504" + "x" * 4000
        Fake(
            tmp_path, pid, command=[wide], environ={"CUDA_VISIBLE_DEVICES": wide}, uids="\t".join(["4242"] * 4)
        ).write()
    table = ProcessTable(tmp_path)
    assert len(table.snapshot()) == 40
    remembered = [pid for pid in range(100, 140) if table.recall(pid) is not None]
    assert 20 < len(remembered) < 32


def test_this_process() -> None:
    process = seen(os.getpid())
    assert process.python
    assert process.uid == os.getuid()
    assert process.executable == os.path.realpath(sys.executable)


@pytest.fixture
def misses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of which a question is missed, each once, as on a busy host: who is asked gets no core in time."""
    found, ask = list[str](), _host.ask

    def asked(requests: list[tuple[int, str, int]], *how: Any) -> Any:
        here = next((name for name in found if any(path.endswith(f"/{name}") for _, path, _ in requests)), None)
        if here is None:
            return ask(requests, *how)
        found.remove(here)
        return guarded._STARVED, [-errno.EINPROGRESS] * len(requests), 0.0, 0

    monkeypatch.setattr(_host, "ask", asked)
    monkeypatch.setattr(guarded, "patience", guarded.Patience())
    return found


def test_what_a_process_missed_is_asked_again_though_it_answered_the_next_question(misses: list[str]) -> None:
    table = ProcessTable()
    with running(UNTIL_TOLD, env={"RANK": "4"}) as job:
        misses.append("cmdline")
        assert table.get(job.pid) is not None
        assert misses == []
        process = table.get(job.pid)
    assert process is not None
    assert (process.rank, process.python) == (4, True)


def test_a_process_that_missed_a_question_has_not_ended_though_it_answered_another_thread(
    misses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, missed = process_of_self(), guarded.Patience.starved

    def heard(patience: guarded.Patience, pid: int, *how: Any) -> None:
        missed(patience, pid, *how)
        patience.answered(pid)

    monkeypatch.setattr(guarded.Patience, "starved", heard)
    misses.append("stat")
    assert ProcessTable().alive(process.id)
    assert misses == []


def test_child_lives_and_ends() -> None:
    table = ProcessTable()
    with running(UNTIL_TOLD, env={"RANK": "4", "SECRET": "no"}) as job:
        process = process_of(job)
        assert (process.rank, process.ppid) == (4, os.getpid())
        assert "SECRET" not in process.environ
        assert process in table.snapshot()
        assert job.pid in {child.id.pid for child in table.children(process_of_self().id)}
        fd = table.pidfd(process.id)
        os.close(fd)
        job.communicate(b"")
        until(lambda: not table.alive(process.id), "the child to end")
    with pytest.raises(NotFound):
        table.pidfd(process.id)


def process_of_self():
    return seen(os.getpid())


def test_what_was_read_of_another_program_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setuid program was exec'd after its owner had been looked at, and before its environment was."""
    Fake(tmp_path, 300).write()
    looks = ProcessTable._look

    def look(self: ProcessTable, pid: int, *rest: Any) -> Any:
        Fake(tmp_path, 300, uids="1000\t0\t0\t0", environ={"RANK": "5"}).write()
        return looks(self, pid, *rest)

    monkeypatch.setattr(ProcessTable, "_look", look)
    table = ProcessTable(tmp_path)
    process = table.get(300)
    assert process is not None
    assert (process.uid, process.rank) == (0, 5)


_THERE_AND_BACK = f"""
import os
print("ready", flush=True)
input()
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.execv({PYTHON!r}, ["python3", "-I", "-c", "print('ready', flush=True); input()"])
"""

_GIVEN_UP = _THERE_AND_BACK.replace('print("ready", flush=True)\ninput()\n', "").replace(
    "os.execv", 'print("ready", flush=True)\ninput()\nos.execv'
)


@needs_setuid
def test_what_its_user_may_not_see_of_a_program_is_not_told_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has given up root's rights, so that its user has it, and is not dumpable; the next one is."""
    with other_program.target(_GIVEN_UP) as target:
        target.say("setuid")
        table = ProcessTable()
        process = table.get(target.job.pid)
        assert process is not None
        assert (process.uid, process.private) == (NOBODY, True)
        private = ProcessTable._private

        def becomes_public(self: ProcessTable, *args: Any) -> bool:
            monkeypatch.undo()
            target.say("exec")
            return private(self, *args)

        monkeypatch.setattr(ProcessTable, "_private", becomes_public)
        process = table.get(target.job.pid)
        assert process is not None
        assert not process.private
        assert "script.py" not in process.command


@needs_setuid
def test_what_was_read_of_a_program_of_roots_that_is_gone_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever it belongs to by what is asked before and behind."""
    with other_program.target(_THERE_AND_BACK) as target:
        looks, words = ProcessTable._look, ["exec", "setuid"]

        def look(*args: Any, **how: Any) -> Any:
            if not words:
                return looks(*args, **how)
            target.say(words.pop())
            found = looks(*args, **how)
            target.say(words.pop())
            return found

        monkeypatch.setattr(ProcessTable, "_look", look)
        process = ProcessTable().get(target.job.pid)
        assert not words
        assert process is not None
        assert (process.uid, process.unread) == (NOBODY, "")
        assert "print('ready', flush=True); input()" in process.command


@needs_setuid
def test_what_is_remembered_of_a_program_of_roots_is_not_told_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes between the reading of stat, which says that what is remembered holds, and that of status."""
    with other_program.target(_THERE_AND_BACK) as target:
        table, pid = ProcessTable(), target.job.pid
        table.get(pid)
        target.say("setuid")
        of_root = table.get(pid)
        assert of_root is not None
        assert (of_root.uid, "script.py" in of_root.command) == (0, True)
        stat = procfs.stat_of(pid)
        target.say("exec")
        status = procfs.status_of(pid)
        with monkeypatch.context() as one_look:
            one_look.setattr(procfs, "looks", lambda *_: iter([(pid, stat, status)]))
            assert table.recall(pid) is None
        looks, between = procfs.looks, [(pid, stat, status)]
        monkeypatch.setattr(procfs, "looks", lambda *given: iter([between.pop()]) if between else looks(*given))
        process = table.get(pid)
        assert process is not None
        assert (process.uid, process.unread) == (NOBODY, "")
        assert "print('ready', flush=True); input()" in process.command


def test_a_process_that_is_another_program_at_every_look_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fake(tmp_path, 300).write()
    looks, users = ProcessTable._look, iter(range(1001, 1099))

    def look(self: ProcessTable, pid: int, *rest: Any) -> Any:
        found = looks(self, pid, *rest)
        uid = next(users)
        Fake(tmp_path, 300, uids=f"{uid}\t{uid}\t{uid}\t{uid}", environ={"RANK": "5"}).write()
        return found

    monkeypatch.setattr(ProcessTable, "_look", look)
    process = ProcessTable(tmp_path).get(300)
    assert process is not None
    assert (process.uid, process.rank, process.command) == (1002, None, f"[{process.name}]")
    assert "another program" in process.unread


def test_pid_that_never_was() -> None:
    # A zombie's pid cannot be used again before it is reaped.
    child = subprocess.Popen(["true"])
    until(lambda: not ProcessTable().alive(ProcessId(child.pid, 0)), "never alive with this start time")
    with pytest.raises(NotFound):
        ProcessTable().pidfd(ProcessId(child.pid, 0))
    child.wait()


def test_no_descriptor_left_is_not_the_end_of_a_process(monkeypatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(Exhausted, match="limit of open files"):
        ProcessTable().pidfd(process_of_self().id)


OTHERS = "1001\t1001\t1001\t1001"
TORCH = [f"{SITE}/torch/lib/libtorch_cpu.so"]


class Clock:
    """Stands still unless it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(look_rate_module, "PROC_LOOK_BYTES_BURST", 1)
        monkeypatch.setattr(table_module, "LookRate", lambda: look_rate_module.LookRate(lambda: self.now))


def test_what_changes_of_one_user_is_read_so_far_and_of_others_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    for pid in (8, 9):
        Fake(tmp_path, pid, maps=TORCH, environ={"RANK": "3"}).write()
    Fake(tmp_path, 10, maps=TORCH, uids=OTHERS).write()
    table = ProcessTable(tmp_path)

    def found() -> list[tuple[str, bool]]:
        return [(process.framework, "more to say" in process.unread) for process in table.snapshot()]

    # WHEN another list is made at once THEN it is the same: what one user's processes cost is no list's
    for _ in range(2):
        assert found() == [("torch", False), ("python", True), ("torch", False)]
    # AND who is named is looked at; AND what was left out is not remembered as all that there is
    named = table.get(9)
    assert named is not None
    assert named.framework == "torch"
    clock.now = 1.0
    assert found() == [("torch", False)] * 3


def test_what_changed_since_is_shown_as_it_was_and_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    fake = Fake(tmp_path, 8, maps=["/usr/bin/python3.11"]).write()
    table = ProcessTable(tmp_path)
    assert not table.snapshot()[0].unread
    fake.maps, fake.vsize = TORCH, fake.vsize + (1 << 30)
    fake.write()
    [process] = table.snapshot()
    assert (process.framework, bool(process.unread)) == ("python", True)
    clock.now = 1.0
    [process] = table.snapshot()
    assert (process.framework, process.unread) == ("torch", "")


def test_of_another_name_alone_it_is_the_same_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is named after each of its tasks is found by its job, however many of them its user has."""
    Clock(monkeypatch)
    fake = Fake(tmp_path, 8, maps=TORCH, environ={"SLURM_JOB_ID": "77", "RANK": "3"}).write()
    table = ProcessTable(tmp_path)
    assert not table.snapshot()[0].unread
    fake.name = "ray::train()"
    fake.write()
    [process] = table.snapshot()
    assert (process.name, process.job, process.rank, bool(process.unread)) == ("ray::train()", "77", 3, True)
    # WHEN it executes another program THEN nothing that was read of the earlier one is told
    fake.stack_base += 1
    fake.write()
    [process] = table.snapshot()
    assert (process.command, process.job, process.rank) == ("[ray::train()]", "", None)


def test_of_one_beyond_its_users_rate_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose processes come and go by the thousand has others wait for what everybody is told, and for no more."""
    Clock(monkeypatch)
    Fake(tmp_path, 8, maps=TORCH).write()
    Fake(tmp_path, 9, maps=TORCH, name="python3.11", cgroup="0::/slurmstepd.scope/job_77/step_0\n").write()
    asked: list[int] = []
    look = ProcessTable._look

    def noted(self: ProcessTable, pid: int, *rest: Any) -> Any:
        asked.append(pid)
        return look(self, pid, *rest)

    monkeypatch.setattr(ProcessTable, "_look", noted)
    _, process = ProcessTable(tmp_path).snapshot()
    assert asked == [8]
    # AND what is told without asking is there, so that a job has it
    assert (process.command, process.python, process.job) == ("[python3.11]", True, "77")
    assert process.unread


def test_of_one_that_has_ended_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(tmp_path, 8, state="Z").write()
    monkeypatch.setattr(ProcessTable, "_look", lambda *_: pytest.fail("it was asked"))
    (process,) = ProcessTable(tmp_path).snapshot()
    assert (process.command, process.zombie, process.unread) == ("[python3]", True, "")


def test_a_setuid_program_is_on_account_of_who_began_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    Fake(tmp_path, 8, uids="1000\t0\t0\t0").write()
    Fake(tmp_path, 9, maps=TORCH, uids="0\t0\t0\t0").write()
    Fake(tmp_path, 10, maps=TORCH).write()
    assert [bool(process.unread) for process in ProcessTable(tmp_path).snapshot()] == [False, False, True]


def test_nobody_holds_the_lock_while_a_process_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(tmp_path, 8).write()
    table = ProcessTable(tmp_path)
    look = table_module.ProcessTable._look

    def unlocked(*arguments: Any) -> Any:
        assert not table._lock.locked()
        return look(*arguments)

    monkeypatch.setattr(table_module.ProcessTable, "_look", unlocked)
    assert table.get(8) is not None
    assert len(table.snapshot()) == 1

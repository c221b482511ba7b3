"""No thread of the daemon takes hold of another process's memory, however briefly: children that can be given up do.

Whoever lets go of it last, because the process was killed meanwhile, gives it back, and waits for its files beyond
SIGKILL. That moment is too short to be met by a test: this one looks at who opens what.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profd import _host
from profd.observers.group import Group
from profd.sources.kineto.lifetime import groups
from profd.sources.pyspy import tool
from profd.sources.pyspy.target import Target
from profd.targets import guarded, load, procfs, run_times
from profd.targets.guarded import Operation, Patience
from profd.targets.identity import Accepted, Standing
from profd.targets.memory import MemoryLimits
from profd.targets.process import Process
from profd.targets.resident import ResidentWatch
from profd.targets.table import ProcessTable
from profd.trust import namespaces
from profd.trust.caller import Caller

from tests.support.dead_files import DeadFiles, dead_files, why_not
from tests.support.python_jobs import process_of, running
from tests.support.waiting import until

PROGRAM = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"
WITHOUT_MEMORY = re.compile(
    r"^/proc/\d+/(task/\d+/)?(comm|cgroup|limits|schedstat|net/.*|task/\d+/children)$", re.ASCII
)
USER = 61234
EACH, HOST = 32, 256  # as in native/host/guarded.cpp
REFUSED = 3

_seen: list[str] | None = None


def _note(event: str, about: tuple[Any, ...]) -> None:
    if event == "open" and _seen is not None and re.match(r"^/proc/\d", str(about[0])):
        _seen.append(str(about[0]))


sys.addaudithook(_note)


@contextlib.contextmanager
def opened_here() -> Iterator[list[str]]:
    """What this process opens of processes in /proc, by Python."""
    global _seen
    found = _seen = []
    try:
        yield found
    finally:
        _seen = None


@pytest.fixture
def process() -> Iterator[Process]:
    with running(PROGRAM) as job:
        yield process_of(job)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "patience", Patience())


def looked_at(process: Process) -> None:
    """By everything that looks into processes."""
    pid = process.id.pid
    table = ProcessTable()
    assert pid in {one.id.pid for one in table.snapshot()}
    assert table.get(pid) is not None
    assert table.recall(pid) is not None
    with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
        assert accepted.hold() == ""
        assert accepted.standing() is Standing.SAME
    assert procfs.resident_of(pid) is not None
    assert procfs.may_be_of(pid, process.uid)
    assert procfs.threads_of(pid) == 1
    assert procfs.has_memory(pid)
    ResidentWatch(process).look()
    assert load.count(process) is not None
    inside = replace(process, namespace_pids=(pid, 1))  # of which ids are looked up
    first = run_times.look(inside)
    assert run_times.between(inside, first, run_times.look(inside)).idle_ids
    Target(inside).note_ended()
    Target(process).tracer()
    assert MemoryLimits().read(pid)
    assert namespaces.shares_pids(pid)
    assert namespaces.container(pid) == 0
    assert namespaces.translate_pids(Caller(0, 0, "root", True, pid), [pid]) == [pid]
    assert groups(process.id)
    assert not tool.full(pid, native=False)
    tool.catches(pid)
    Group(os.getpgid(pid)).why_to_end()


def test_who_looks_into_a_process_has_a_child_ask(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pread", None)  # as the map of its memory could be read
    with opened_here() as found:
        looked_at(process)
    assert not [path for path in found if not WITHOUT_MEMORY.match(path)]


def test_the_memory_of_one_that_has_ended_is_nobodys() -> None:
    with running(PROGRAM) as job:
        held = procfs.opened(f"/proc/{job.pid}/pagemap", os.O_RDONLY)
        wanted = [(int(Operation.IN_USE), "", held), (int(Operation.RECORD), "/proc/self/comm", 64)]
        assert _host.ask(wanted, 1.0)[1][0] == 1
    until(lambda: _host.ask(wanted[:1], 1.0)[1] == [0], "its memory has gone")
    answers = _host.ask(wanted, 1.0)[1]
    os.close(held)
    assert answers[0] == 0
    assert isinstance(answers[1], int)  # what comes behind is not asked


needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[DeadFiles]:
    """A process with a file whose opening waits beyond SIGKILL."""
    with dead_files(tmp_path / "mount", USER, "OPEN:waits.py") as found:
        yield found


class Waiting:
    """Children that nobody can end, made for users."""

    def __init__(self, dead: DeadFiles) -> None:
        self._file = f"{dead.root}{dead.folder}/waits.py"

    def more(self, uid: int, count: int) -> None:
        """About so many: on a busy host some are ended before they wait."""
        asked = [(int(Operation.READ), self._file, 16)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: _host.ask(asked, 0.0, [uid]), range(count)))

    def as_many_as_may_be(self, uid: int) -> None:
        """All of a user's share. Several at once may be let in by its last place."""
        self.more(uid, EACH)
        while outcome(uid) != REFUSED:
            self.more(uid, 4)


def outcome(uid: int) -> int:
    """Of a question that is easily answered."""
    return _host.ask([(int(Operation.RECORD), "/proc/self/comm", 64)], 1.0, [uid])[0]


@needs_fuse
def test_children_that_wait_for_ever_are_a_share_of_their_user(dead: DeadFiles) -> None:
    Waiting(dead).as_many_as_may_be(USER)
    assert outcome(USER) == REFUSED
    assert outcome(USER + 1) == outcome(0) == 0
    # AND processes of this user are told as ones that do not answer, others' as they are
    assert procfs.status_of(dead.pid) is None
    assert procfs.unanswering(dead.pid)
    assert procfs.status_of(os.getpid()) is not None
    # AND that is over when they have let go
    dead.close()
    until(lambda: outcome(USER) == 0, "they have ended")


@needs_fuse
def test_where_the_host_has_many_such_children_a_user_with_few_is_let_in(dead: DeadFiles) -> None:
    waiting = Waiting(dead)
    users = range(USER, USER + HOST // EACH)
    for uid in users:
        waiting.as_many_as_may_be(uid)
    assert {outcome(uid) for uid in users} == {REFUSED}
    assert outcome(USER + HOST) == outcome(0) == 0
    waiting.more(USER + HOST, 2)
    assert outcome(USER + HOST) == 0

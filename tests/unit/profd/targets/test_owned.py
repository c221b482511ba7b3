"""The processes of one user: nobody else's are asked, whatever they do and however many there are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from profd import _host
from profd.targets import procfs
from profd.targets import table as table_module
from profd.targets.process import Process
from profd.targets.table import ProcessTable

from tests.support.waiting import until
from tests.unit.profd.targets.proc_tree import Fake

MINE, OTHER = 61240, 61241
OTHERS = "\t".join([str(OTHER)] * 4)
# Becomes another program all the time; each says its pid once.
STORM = 'echo; exec sh -c "$0" "$0" >/dev/null'
STORMING = 16

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="processes of other users take root")


@contextmanager
def storm(uid: int) -> Iterator[set[int]]:
    """Pids of processes of a user that do nothing but execute programs."""
    with ExitStack() as ends:
        pids = set()
        for _ in range(STORMING):
            one = ends.enter_context(
                subprocess.Popen(
                    ["sh", "-c", STORM, STORM], stdout=subprocess.PIPE, user=uid, group=uid, extra_groups=[]
                )
            )
            ends.callback(one.kill)
            assert one.stdout is not None
            one.stdout.readline()
            pids.add(one.pid)
        yield pids


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Pids of the processes that were asked anything."""
    found: set[int] = set()
    ask = _host.ask

    def noted(requests: list[tuple[int, str, int]], *how: Any) -> object:
        paths = (path for _, path, _ in requests)
        found.update(int(match[1]) for path in paths if (match := re.match(r"/proc/(\d+)/", path)))
        return ask(requests, *how)

    monkeypatch.setattr(_host, "ask", noted)
    return found


@needs_root
def test_nobody_waits_for_programs_that_others_execute_all_the_time(asked: set[int]) -> None:
    with storm(OTHER) as others, subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=MINE, group=MINE) as mine:
        table = ProcessTable()
        for _ in range(3):
            assert mine.pid in {process.id.pid for process in table.owned(MINE)}
        assert mine.pid in asked
        assert not asked & others
        # AND whom the asker names is asked, whoever has it
        named = min(others)
        until(lambda: named in {process.id.pid for process in table.owned(MINE, [named])}, "it answers")
        assert asked & others == {named}


BECOMES = """
import os, sys
uid = int(sys.argv[1])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
print(flush=True)
input()
"""


@needs_root
def test_a_process_whose_files_are_roots_is_its_users_all_the_same() -> None:
    """One that is not dumpable."""
    words = [sys.executable, "-c", BECOMES, str(MINE)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as mine:
        assert mine.stdout is not None
        mine.stdout.readline()
        assert os.stat(f"/proc/{mine.pid}/stat").st_uid == 0
        found = {process.id.pid: process for process in ProcessTable().owned(MINE)}
        assert (found[mine.pid].uid, found[mine.pid].private) == (MINE, True)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up /proc whose folders are whose status says."""

    def user_of(pid: int, root: Path) -> int:
        status = root / str(pid) / "status"
        return int(status.read_text().split("Uid:\t")[1].split("\t")[1]) if status.exists() else -1

    monkeypatch.setattr(table_module, "user_of", user_of)
    return tmp_path


def parents(found: list[Process]) -> dict[int, int]:
    return {process.id.pid: process.ppid for process in found}


def test_what_is_above_is_there_by_what_everybody_is_told(tree: Path) -> None:
    """So that a launcher of the user's knows of what it has started through another user's program, such as sudo."""
    Fake(tree, 1, ppid=0, uids="0\t0\t0\t0").write()
    Fake(tree, 10, ppid=1).write()
    Fake(tree, 11, ppid=10, uids=OTHERS, environ={"RANK": "7"}).write()
    Fake(tree, 12, ppid=11, environ={"RANK": "3"}).write()
    Fake(tree, 13, ppid=11, uids=OTHERS).write()
    found = ProcessTable(tree).owned(1000)
    assert parents(found) == {1: 0, 10: 1, 11: 10, 12: 11}
    above = found[2]
    assert (above.uid, above.command, above.rank, above.private) == (OTHER, "[python3]", None, True)
    assert found[3].rank == 3


def test_the_parents_of_the_last_list_are_asked_with_the_users_own(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child asks of eight processes: not of one for each level, where each waits for a core."""
    for pid in range(1, 6):
        Fake(tree, pid, ppid=pid - 1, uids="0\t0\t0\t0").write()
    job = Fake(tree, 10, ppid=5).write()
    table, looks = ProcessTable(tree), procfs.looks
    first = table.owned(1000)
    asked: list[list[int]] = []
    monkeypatch.setattr(procfs, "looks", lambda pids, *root: asked.append(list(pids)) or looks(asked[-1], *root))
    assert table.owned(1000) == first
    assert [pids for pids in asked if pids] == [[1, 2, 3, 4, 5, 10]]
    # AND where its parents are others by now, these are told, and no more
    job.ppid = 2
    job.write()
    assert parents(table.owned(1000)) == {1: 0, 2: 1, 10: 2}


def test_a_loop_of_parents_ends(tree: Path) -> None:
    """Pids are used again while they are looked at."""
    Fake(tree, 10, ppid=11).write()
    Fake(tree, 11, ppid=12, uids=OTHERS).write()
    Fake(tree, 12, ppid=11, uids=OTHERS).write()
    assert parents(ProcessTable(tree).owned(1000)) == {10: 11, 11: 12, 12: 11}


def test_what_is_known_of_others_is_kept_as_long_as_they_are_there(tree: Path) -> None:
    Fake(tree, 10).write()
    other = Fake(tree, 11, uids=OTHERS).write()
    reused = Fake(tree, 12).write()
    table = ProcessTable(tree)
    table.snapshot()
    reused.start_ticks += 1
    reused.write()
    table.owned(1000)
    assert {process.pid for process in table._facts.processes()} == {10, 11, 12}
    assert len(table._facts.processes()) == 3
    shutil.rmtree(other.folder)
    table.owned(1000)
    assert {process.pid for process in table._facts.processes()} == {10, 12}

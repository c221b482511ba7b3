"""Which builds are made, when, and what is told of them; the builder is the test's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from profd.limits import OBSERVER_MEMORY_BYTES_MIN
from profd.observers import observers as module
from profd.observers.builder import Built
from profd.observers.observers import BY_HAND, Observers
from profd.observers.observers import free_bytes as free
from profd.observers.torch_of import Elsewhere, Wanted
from profd.targets.process import Process, ProcessId

from tests.support.waiting import eventually

LOOK = "profd.observers.observers.torch_of.look"
ME = Process(ProcessId(7, 1), 1, os.geteuid(), os.getegid(), "u", "python", framework="torch", python=True)
WANTED = Wanted("2.13.0", "cf30", True, "", "/site/torch", "/home/u/.cache", 1000, 1000)


class Builder:
    """Builds when it is told to, and says what it is told."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[Wanted] = []
        self.awaited: list[bool] = []  # whether somebody waited for its place
        self.running = self.most = 0
        self.go = asyncio.Event()
        self.result = Built("", str(directory))

    async def __call__(self, wanted: Wanted, *, change_identity: bool, awaited: Callable[[], bool]) -> Built:
        self.asked.append(wanted)
        self.awaited.append(awaited())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return self.result


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    found = Builder(tmp_path)
    monkeypatch.setattr(module, "build", found)
    monkeypatch.setattr(LOOK, lambda process, proc: replace(WANTED, uid=process.uid))
    monkeypatch.setattr(module, "free_bytes", lambda proc: OBSERVER_MEMORY_BYTES_MIN)
    return found


@pytest.fixture
async def observers(builder: Builder) -> AsyncIterator[Observers]:
    found = Observers(enabled=True, change_identity=False)
    yield found
    await found.close()


def done(observers: Observers, state: str, number: int = 1) -> bool:
    return observers.counts()[state] == number


async def test_one_is_built_once_and_used(observers: Observers, builder: Builder, tmp_path: Path) -> None:
    await observers.look([ME])
    for _ in range(3):
        assert observers.fix(ME) == "it is being built: profctl torch list"
    assert not observers.usable(ME)
    (tmp_path / "build.json").touch()
    builder.go.set()
    await eventually(lambda: done(observers, "built"))
    await observers.look([ME])
    assert observers.usable(ME)
    assert len(builder.asked) == 1


async def test_one_that_stands_still_keeps_nobody_else_waiting(
    observers: Observers, monkeypatch: pytest.MonkeyPatch, builder: Builder
) -> None:
    async def build(wanted: Wanted, **more: Any) -> Built:
        return Built("", "/there") if wanted.uid != 1 else await builder(wanted, **more)

    monkeypatch.setattr(module, "build", build)
    users = [replace(ME, id=ProcessId(uid, 1), uid=uid) for uid in (1, 2, 3)]
    await observers.look(users)
    for user in users:
        observers.fix(user)
    await eventually(lambda: done(observers, "built", 2))
    assert done(observers, "being built")


async def test_they_are_built_two_at_a_time_each_for_its_user(observers: Observers, builder: Builder) -> None:
    users = [replace(ME, id=ProcessId(uid, 1), uid=uid) for uid in (1, 2, 3)]
    await observers.look(users)
    for user in users:
        observers.fix(user)
    await eventually(lambda: len(builder.asked) == 2)
    builder.go.set()
    await eventually(lambda: done(observers, "built", 3))
    assert [wanted.uid for wanted in builder.asked] == [1, 2, 3]
    assert builder.most == 2
    assert builder.awaited == [True, True, False]  # the first two had somebody behind them


async def test_a_failure_is_told_and_not_tried_again(observers: Observers, builder: Builder, tmp_path: Path) -> None:
    builder.result = Built("no C++ compiler was found", str(tmp_path))
    builder.go.set()
    await observers.look([ME])
    observers.fix(ME)
    await eventually(lambda: done(observers, "failed"))
    for _ in range(2):
        await observers.look([ME])
        assert "no C++ compiler was found (profctl torch build tries again)" in observers.fix(ME)
    assert len(builder.asked) == 1
    (tmp_path / "build.json").touch()  # somebody has built it by hand
    await observers.look([ME])
    assert observers.usable(ME)


async def test_without_memory_it_is_put_off(
    observers: Observers, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda proc: 1 << 29)
    await observers.look([ME])
    observers.fix(ME)
    await eventually(lambda: done(observers, "put off"))
    assert not builder.asked
    monkeypatch.setattr(module, "free_bytes", lambda proc: OBSERVER_MEMORY_BYTES_MIN)
    observers.fix(ME)
    await eventually(lambda: builder.asked)


async def test_one_that_the_process_does_not_load_is_told(
    observers: Observers, builder: Builder, tmp_path: Path
) -> None:
    (tmp_path / "build.json").touch()
    builder.go.set()
    await observers.look([ME])
    observers.fix(ME)
    await eventually(lambda: done(observers, "built"))
    await observers.look([ME])
    observers.not_loaded(ME)
    await observers.look([ME])
    assert not observers.usable(ME)
    assert "of another version than the daemon's" in observers.fix(ME)


async def test_a_daemon_for_all_users_lets_no_compiler_run_as_root(builder: Builder) -> None:
    root = Observers(enabled=True, change_identity=True)
    theirs = replace(ME, uid=0)
    await root.look([theirs])
    assert "builds none for root" in root.fix(theirs)
    assert "profctl torch build" in root.fix(theirs)
    await root.close()
    assert not builder.asked
    assert not root.counts()


async def test_nothing_is_built_where_it_is_off_or_cannot_be(
    observers: Observers, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Observers(enabled=False, change_identity=False)
    await off.look([ME])
    assert off.fix(ME) == BY_HAND

    def elsewhere(process: Process, proc: Path) -> Wanted:
        raise Elsewhere("build it in its image")

    monkeypatch.setattr(LOOK, elsewhere)
    await observers.look([ME])
    assert observers.fix(ME) == "build it in its image"
    assert observers.fix(replace(ME, id=ProcessId(8, 1))) == BY_HAND  # never looked at
    assert not builder.asked
    assert not observers.counts()


async def test_a_user_has_one_in_the_queue_and_the_next_one_is_another_users(
    observers: Observers, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(process: Process, proc: Path) -> Wanted:
        return replace(WANTED, uid=process.uid, torch=str(process.id.pid))

    monkeypatch.setattr(LOOK, look)
    mine = [replace(ME, id=ProcessId(pid, 1), uid=1) for pid in (1, 2, 3)]
    other = replace(ME, id=ProcessId(4, 1), uid=2)
    await observers.look([*mine, other])
    told = [observers.fix(process) for process in (*mine, other)]
    assert ["another one of its user's is being built" in one for one in told] == [False, True, True, False]
    builder.go.set()
    await eventually(lambda: done(observers, "built", 2))
    assert [wanted.torch for wanted in builder.asked] == ["1", "4"]
    assert observers.fix(mine[1]) == "it is being built: profctl torch list"


async def test_after_one_that_took_too_long_its_user_waits(
    observers: Observers, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOOK, lambda process, proc: replace(WANTED, torch=str(process.id.pid)))
    builder.result = Built("it took longer than 600 s", too_long=True)
    builder.go.set()
    second = replace(ME, id=ProcessId(8, 1))
    await observers.look([ME, second])
    observers.fix(ME)
    await eventually(lambda: done(observers, "failed"))
    assert "took too long, less than an hour ago" in observers.fix(second)
    assert len(builder.asked) == 1


async def test_one_that_did_not_begin_is_asked_for_again(observers: Observers, builder: Builder) -> None:
    builder.result = Built("the process has ended", again=True)
    builder.go.set()
    await observers.look([ME])
    observers.fix(ME)
    await eventually(lambda: done(observers, "put off"))
    observers.fix(ME)
    await eventually(lambda: len(builder.asked) == 2)


async def test_a_look_at_a_dead_disk_takes_one_thread(
    observers: Observers, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, looks = Event(), []

    def look(process: Process, proc: Path) -> Wanted:
        looks.append(process)
        answered.wait()
        return WANTED

    monkeypatch.setattr(LOOK, look)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    for _ in range(3):
        await observers.look([ME])
    answered.set()
    assert len(looks) == 1
    monkeypatch.setattr(module, "_LOOK_SECONDS", 60.0)
    await observers.look([ME])
    assert observers.fix(ME) == "it is being built: profctl torch list"


def test_what_the_daemons_own_cgroup_has_left_counts(tmp_path: Path) -> None:
    group = tmp_path / "cgroup"
    group.mkdir()
    for name, said in (("memory.max", 3 << 30), ("memory.current", 2 << 30), ("memory.stat", "")):
        (group / name).write_text(f"{said}\n")
    for folder in ("self", str(os.getpid())):
        (tmp_path / folder).mkdir()
    (tmp_path / "meminfo").write_text(f"MemAvailable: {8 << 20} kB\n")
    (tmp_path / str(os.getpid()) / "cgroup").write_text("0::/\n")
    (tmp_path / "self" / "mountinfo").write_text(f"1 1 0:1 / {group} rw - cgroup2 cgroup2 rw\n")
    assert free(tmp_path) == 1 << 30

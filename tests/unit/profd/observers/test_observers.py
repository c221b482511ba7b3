"""Which builds are made, when, and what is told of them; the builder is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from profd.limits import OBSERVER_MEMORY_BYTES_MIN
from profd.observers import observers as module
from profd.observers.builder import Built
from profd.observers.observers import BY_HAND, Observers
from profd.observers.torch_of import Elsewhere, Wanted
from profd.targets.process import Process, ProcessId

from tests.support.waiting import eventually

ME = Process(ProcessId(7, 1), 1, 1000, 1000, "u", "python", framework="torch", python=True)
WANTED = Wanted("2.13.0", "cf30", True, "", "/site/torch", "/home/u/.cache", 1000, 1000)


class Builder:
    """Builds when it is told to, and says what it is told."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[Wanted] = []
        self.running = self.most = 0
        self.go = asyncio.Event()
        self.result = Built("", str(directory))

    async def __call__(self, wanted: Wanted, *, change_identity: bool) -> Built:
        self.asked.append(wanted)
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
    monkeypatch.setattr(module.torch_of, "look", lambda process, proc: replace(WANTED, uid=process.uid))
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


async def test_they_are_built_one_after_the_other_each_for_its_user(observers: Observers, builder: Builder) -> None:
    users = [replace(ME, id=ProcessId(uid, 1), uid=uid) for uid in (1, 2, 3)]
    await observers.look(users)
    for user in users:
        observers.fix(user)
    await eventually(lambda: builder.asked)
    builder.go.set()
    await eventually(lambda: done(observers, "built", 3))
    assert [wanted.uid for wanted in builder.asked] == [1, 2, 3]
    assert builder.most == 1


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


async def test_nothing_is_built_where_it_is_off_or_cannot_be(
    observers: Observers, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Observers(enabled=False, change_identity=False)
    await off.look([ME])
    assert off.fix(ME) == BY_HAND

    def elsewhere(process: Process, proc: Path) -> Wanted:
        raise Elsewhere("build it in its image")

    monkeypatch.setattr(module.torch_of, "look", elsewhere)
    await observers.look([ME])
    assert observers.fix(ME) == "build it in its image"
    assert observers.fix(replace(ME, id=ProcessId(8, 1))) == BY_HAND  # never looked at
    assert not builder.asked
    assert not observers.counts()

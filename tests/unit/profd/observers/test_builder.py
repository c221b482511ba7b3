"""The builder as a process, and what others of its uid can do to the daemon that waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from profd.observers import builder
from profd.observers.torch_of import Wanted

LONG = 60.0
SLEEPS = "import sys, time; sys.stdin.read(); time.sleep(600)"


def wanted(folder: Path) -> Wanted:
    return Wanted("2.13.0", "cf30", True, "", str(folder / "torch"), str(folder / "cache"), os.geteuid(), os.getegid())


async def test_it_says_what_became_of_it(tmp_path: Path) -> None:
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert built.why == "the torch has no C++ headers; the observer is built against them"
    assert built.directory.startswith(f"{tmp_path}/cache/profd/torch/torch-2.13.0-")


async def test_who_holds_its_answer_open_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    start = builder._start

    def opened(*arguments: object, **more: object) -> object:
        process, listener = start(*arguments, **more)  # type: ignore[arg-type]
        held.append(os.open(f"/proc/{process.pid}/fd/1", os.O_RDWR))  # as any process of its uid can
        return process, listener

    monkeypatch.setattr(builder, "_start", opened)
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert "no C++ headers" in built.why
    with pytest.raises(PermissionError):
        os.ftruncate(held[0], 1 << 40)  # nor made to be read at length
    os.close(held[0])


async def test_one_that_takes_too_long_is_ended_though_its_answer_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "command", lambda: sleeping(tmp_path))
    monkeypatch.setattr(builder, "OBSERVER_BUILD_SECONDS", 0.0)
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert "took longer than" in built.why
    assert built.too_long
    assert built.again  # the host was busy: that is no reason to refuse the next one for ever


async def test_one_that_nobody_waits_for_may_take_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "command", lambda: sleeping(tmp_path))
    monkeypatch.setattr(builder, "OBSERVER_BUILD_SECONDS", 0.0)
    monkeypatch.setattr(builder, "_LOOK_SECONDS", 0.01)
    asked: list[bool] = []

    def awaited() -> bool:
        asked.append(len(asked) >= 20)
        return asked[-1]

    built = await builder.build(wanted(tmp_path), change_identity=False, awaited=awaited)
    assert asked == [False] * 20 + [True]
    assert built.why == "it took longer than 0 s"


async def test_one_that_nobody_waits_for_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "command", lambda: sleeping(tmp_path))
    monkeypatch.setattr(builder, "OBSERVER_BUILD_ALONE_SECONDS", 0.0)
    built = await builder.build(wanted(tmp_path), change_identity=False, awaited=lambda: False)
    assert built.why == "it took longer than 0 s"


def sleeping(folder: Path) -> list[str]:
    """The command of a builder that does not end."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{SLEEPS}'\n")
    program.chmod(0o755)
    return [str(program)]


@pytest.mark.parametrize("name", ["cache/profd", "cache/profd/torch"])
async def test_a_planted_link_is_refused_and_nothing_behind_it_changed(tmp_path: Path, name: str) -> None:
    behind = tmp_path / "behind"
    behind.mkdir(mode=0o755)
    link = tmp_path / name
    link.parent.mkdir(mode=0o700, parents=True)
    for part in (tmp_path / "cache", link.parent):
        part.chmod(0o700)
    link.symlink_to(behind)
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert "symbolic link" in built.why
    assert not list(behind.iterdir())
    assert stat.S_IMODE(behind.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["cache", "cache/profd", "cache/profd/torch"])
async def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "cache" / "profd" / "torch").mkdir(parents=True)
    for part in ("cache", "cache/profd", "cache/profd/torch"):
        (tmp_path / part).chmod(0o1777 if part == name else 0o700)
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert f"{tmp_path / name} is writable by others" in built.why
    assert not list((tmp_path / "cache" / "profd" / "torch").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder takes root")
@pytest.mark.parametrize("name", ["", "cache", "cache/profd", "cache/profd/torch"])
async def test_a_folder_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    if name:
        (tmp_path / name).mkdir(mode=0o700, parents=True)
        for part in (tmp_path / name, *(tmp_path / name).parents[: name.count("/")]):
            part.chmod(0o700)
    (tmp_path / name).chmod(0o755)
    os.chown(tmp_path / name, 65534, 65534)
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert f"{tmp_path / name} belongs to uid 65534" in built.why
    assert [path.name for path in (tmp_path / name).iterdir()] == []


async def test_a_process_that_has_ended_before_is_told_apart_from_a_failure(tmp_path: Path) -> None:
    """Its pid is another process's by then, whose root is not gone through."""
    gone = replace(wanted(tmp_path), pid=os.getpid(), start_ticks=1)
    built = await builder.build(gone, change_identity=False)
    assert built.again
    assert "the process has ended" in built.why
    assert not list(tmp_path.iterdir())


COMPILER_THAT_STOPS = (
    "import os, signal, subprocess, sys; sys.stdin.read(); subprocess.run(['/bin/sh', '-c', 'kill -STOP $$'])"
)


async def test_one_whose_compiler_is_stopped_is_ended_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{COMPILER_THAT_STOPS.replace("$", chr(92) + "$")}"\n')
    program.chmod(0o755)
    monkeypatch.setattr(builder, "command", lambda: [str(program)])
    monkeypatch.setattr(builder, "_LOOK_SECONDS", 0.1)
    built = await builder.build(wanted(tmp_path), change_identity=False)
    assert "one of its processes was stopped" in built.why
    assert built.too_long  # and its user's next one is not begun for a while


async def test_one_that_is_cancelled_while_it_starts_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, begun, go_on = builder._start, threading.Event(), threading.Event()
    started: list[tuple[subprocess.Popen[bytes], int]] = []

    def late(*arguments: object, **more: object) -> object:
        started.append(start(*arguments, **more))  # type: ignore[arg-type]
        begun.set()
        assert go_on.wait(LONG)
        return started[0]

    monkeypatch.setattr(builder, "_start", late)
    monkeypatch.setattr(builder, "command", lambda: sleeping(tmp_path))
    building = asyncio.create_task(builder.build(wanted(tmp_path), change_identity=False))
    assert await asyncio.to_thread(begun.wait, LONG)
    building.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await building
    [(process, listener)] = started
    assert process.wait(LONG) == -signal.SIGKILL
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(listener)

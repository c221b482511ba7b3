"""Stacks of right now, and who may have them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from profd.errors import Denied, Exhausted, JobFailed, NotFound
from profd.model.capture import Reason
from profd.model.frame import Frame
from profd.sources.pyspy import tool
from profd.sources.pyspy import where as where_module
from profd.sources.pyspy.confinement import confine
from profd.sources.pyspy.permission import Rights
from profd.sources.pyspy.target import Target
from profd.sources.pyspy.where import stacks

from tests.support.python_jobs import (
    JOINING,
    SPIN,
    TWO_THREADS,
    let_scripts_play_py_spy,
    needs_ptrace,
    process_of,
    running,
    seen,
)
from tests.support.waiting import until

pytestmark = needs_ptrace

NOBODY = 65534


@pytest.mark.parametrize("native", [False, True])
async def test_two_threads(native: bool) -> None:
    with running(TWO_THREADS) as job:
        process = process_of(job)
        main, waiter = await stacks(process, native)
    assert (main.thread, main.name) == (job.pid, "MainThread")
    assert main.frames[-1].function == "<module>" or native
    assert any(
        frame.function == "busy" and frame.file == "<string>" and frame.line in (5, 6, 7) for frame in main.frames
    )
    assert waiter.name == "waiter"
    assert any(frame.function == "waiting" and frame.line in (10, 11) for frame in waiter.frames)
    assert not waiter.owns_gil


@pytest.mark.parametrize("native", [False, True])
async def test_a_join_names_the_thread_whose_end_it_waits_for(native: bool) -> None:
    with running(JOINING) as job:
        threads = {thread.name: thread for thread in await stacks(process_of(job), native)}
    assert threads["MainThread"].joins == threads["holder"].thread
    assert threads["waiter"].joins == threads["holder"].thread
    assert not threads["holder"].joins


# `threading` takes any string.
ODD_NAMES = r"""
import threading, time
for name in ["plain", "half \ud800 a character", "red\x1b[31m", "two\u2028lines", "\n", "名前", "long" * 2000]:
    threading.Thread(target=time.sleep, args=(600,), name=name, daemon=True).start()
nameless = threading.Thread(target=time.sleep, args=(600,), daemon=True)
nameless.start()
nameless._name = ""
print("ready", flush=True)
time.sleep(600)
"""


async def test_one_odd_name_leaves_the_others_theirs() -> None:
    with running(ODD_NAMES) as job:
        threads = await stacks(process_of(job))
    odd = "\N{REPLACEMENT CHARACTER}"
    names = {
        "MainThread",
        "plain",
        "half ? a character",
        f"red{odd}[31m",
        f"two{odd}lines",
        odd,
        "名前",
        "long" * 256,
        "",
    }
    assert {thread.name for thread in threads} == names
    assert threads[0].name == "MainThread"


async def test_a_main_thread_without_a_name_has_the_usual_one() -> None:
    with running("print('ready', flush=True)\ninput()\n") as job:
        (thread,) = await stacks(process_of(job))
    assert thread.name == "MainThread"


async def test_a_look_at_locks_has_no_warden(monkeypatch: pytest.MonkeyPatch) -> None:
    wardens, started, programs, spawn = 0, tool._start_warden, list[str](), tool.spawn

    async def start(*arguments: Any) -> asyncio.subprocess.Process:
        nonlocal wardens
        wardens += 1
        return await started(*arguments)

    async def spawned(*arguments: Any) -> asyncio.subprocess.Process:
        programs.append(arguments[3] if len(arguments) > 3 else "launch")
        return await spawn(*arguments)

    monkeypatch.setattr(tool, "_start_warden", start)
    monkeypatch.setattr(tool, "spawn", spawned)
    monkeypatch.setattr(where_module, "confine", lambda *of: dataclasses.replace(confine(*of), warden=True))
    with running(TWO_THREADS) as job:
        await stacks(process_of(job))
    assert "locks" in programs
    assert wardens == programs.count("launch"), "which looks once more where a stack was torn"


TORN = '[{"thread_id": 1, "active": true, "frames": [{"name": "numbers"}]}]'
WHOLE = '[{"thread_id": 1, "active": true, "frames": [{"name": "numbers"}, {"name": "<module>"}]}]'


async def test_a_torn_stack_is_looked_at_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    pretend(monkeypatch, tmp_path, f"[ -e {seen} ] && echo '{WHOLE}' || echo '{TORN}'\n: > {seen}")
    with running(SPIN) as job:
        (thread,) = await stacks(process_of(job))
    assert [frame.function for frame in thread.frames] == ["numbers", "<module>"]
    assert not thread.incomplete


async def test_a_stack_that_stays_torn_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, f"echo '{TORN}'")
    with running(SPIN) as job:
        (thread,) = await stacks(process_of(job))
    assert thread.incomplete
    assert [frame.function for frame in thread.frames] == ["numbers"]


async def test_what_cannot_be_looked_at_again_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    pretend(monkeypatch, tmp_path, f"[ -e {seen} ] && exit 1\necho '{TORN}'\n: > {seen}")
    with running(SPIN) as job:
        (thread,) = await stacks(process_of(job))
    assert thread.incomplete


async def test_stopped_process_can_be_looked_at() -> None:
    with running(SPIN) as job:
        process = process_of(job)
        os.kill(job.pid, signal.SIGSTOP)
        until(Target(process).stopped, "the target to stop")
        (thread,) = await stacks(process)
        assert any(frame.function == "outer" for frame in thread.frames)
        with pytest.raises(JobFailed, match="--native"):
            await stacks(process, native=True)
        assert Target(process).stopped()


async def test_process_that_has_ended() -> None:
    with running(SPIN) as job:
        process = process_of(job)
    with pytest.raises(NotFound, match=str(job.pid)):
        await stacks(process)


async def test_process_that_is_no_python() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            process = seen(sleeper.pid)
            with pytest.raises(NotFound, match="no interpreter"):
                await stacks(process)
        finally:
            sleeper.kill()


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(tool, "find", lambda: path)
    let_scripts_play_py_spy(monkeypatch)


POOL = """
import sys, threading
held, there = threading.Event(), threading.Barrier(65)
def deep(left):
    if left:
        deep(left - 1)
    else:
        there.wait()
        held.wait()
threading.stack_size(1 << 18)
for _ in range(64):
    threading.Thread(target=deep, args=(97,), daemon=True).start()
there.wait()
print("ready", flush=True)
sys.stdin.read()
"""


async def test_many_threads_that_wait_in_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where_module, "DUMP_BYTES_MAX", 1 << 20)  # all of it, with each stack for itself, is larger
    with running(POOL) as job:
        threads = await stacks(process_of(job))
    assert len(threads) == 65
    waiting = [thread.frames for thread in threads if len(thread.frames) > 100]
    assert len(waiting) == 64
    assert len(set(map(id, waiting))) < 32  # equal ones are one; some may still be on their way


async def test_answer_without_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(where_module, "DUMP_BYTES_MAX", 1 << 20)
    pretend(monkeypatch, tmp_path, "exec cat /dev/zero")
    with running(SPIN) as job, pytest.raises(Exhausted):
        await stacks(process_of(job))


async def test_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(where_module, "DUMP_SECONDS", 0.2)
    pretend(monkeypatch, tmp_path, "exec sleep 600")
    with running(SPIN) as job, pytest.raises(JobFailed, match="within"):
        await stacks(process_of(job))


@pytest.mark.parametrize("answer", ["", "{}", "[[[[", '[{"thread_id": "x"}]', "\\377"])
async def test_malformed_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str) -> None:
    pretend(monkeypatch, tmp_path, f"printf '%b' '{answer}'")
    with running(SPIN) as job, pytest.raises(JobFailed, match="malformed"):
        await stacks(process_of(job))


async def test_answer_with_control_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raw = r'[{"thread_id":1,"thread_name":"a\\u001b[31m","frames":[{"name":"f\\u0007","filename":"x","line":-4}]}]'
    pretend(monkeypatch, tmp_path, f"printf '%b' '{raw}'")
    with running(SPIN) as job:
        (thread,) = await stacks(process_of(job))
    odd = "\N{REPLACEMENT CHARACTER}"
    assert thread.name == f"a{odd}[31m"
    assert thread.frames == (Frame(f"f{odd}", "x", 0),)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_refusal_of_the_kernel_is_explained() -> None:
    """py-spy as another user, without the capability: its own words."""
    installed = tool.find()
    assert installed is not None
    with running(SPIN) as job, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = shutil.copy(installed, folder)
        os.chmod(copy, 0o755)
        command = [copy, "dump", "--pid", str(job.pid)]
        pyspy = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[]
        )
        _, said = await pyspy.communicate()
    reason, sentence = tool.explain(said.decode().splitlines())
    assert pyspy.returncode == 1
    assert reason is Reason.NOT_PERMITTED
    assert "CAP_SYS_PTRACE" in sentence


@pytest.mark.skipif(Rights.mine().capable, reason="with CAP_SYS_PTRACE everything may be looked at")
async def test_process_of_root_is_refused() -> None:
    process = seen(1)
    with pytest.raises(Denied, match="CAP_SYS_PTRACE"):
        await stacks(dataclasses.replace(process, python=True))

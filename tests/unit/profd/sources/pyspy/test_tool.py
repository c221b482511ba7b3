"""py-spy the program: finding it, its version, its errors."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from profd.errors import Unavailable
from profd.limits import SAMPLER_MEMORY_BYTES, SAMPLER_WORDS_BYTES_MAX, SAMPLERS_LEFT_MAX
from profd.model.capture import Reason
from profd.sources.pyspy import tool
from profd.sources.pyspy.confinement import confine

from tests.support.descriptors import nothing_left_open
from tests.support.python_jobs import SPIN, needs_ptrace, process_of, running
from tests.support.waiting import eventually


def program(folder: Path, script: str) -> Path:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


async def test_installed_version() -> None:
    found = tool.find()
    assert found is not None
    assert tuple(int(part) for part in (await tool.version(found)).split(".")) >= tool.VERSION_MIN


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo py-spy 0.3.14", "0.3.14"), ("echo hello", "not a py-spy"), ("exit 3", "not a py-spy")],
)
async def test_unusable_versions(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(Unavailable, match=said):
        await tool.version(program(tmp_path, script))


@pytest.mark.parametrize(
    ("lines", "reason", "said"),
    [
        (["Permission Denied: Try running again with elevated permissions"], Reason.NOT_PERMITTED, "CAP_SYS_PTRACE"),
        (
            ["Error: Failed to suspend process", "Caused by:", "0: EPERM: Operation not permitted"],
            Reason.NOT_PERMITTED,
            "EPERM",
        ),
        (["Error: Failed to find python version from target process"], Reason.NO_SOURCE, "musl"),
        (["Error: Unsupported version of Python: 3.99.0"], Reason.NO_SOURCE, "pip install -U"),
        (
            ["Error: Failed to get process executable name. Check that the process is running."],
            Reason.TARGET_ENDED,
            "",
        ),
        (["Error: No such process (os error 3)"], Reason.TARGET_ENDED, ""),
        (["something new"], Reason.SOURCE_FAILED, "something new"),
        ([], Reason.SOURCE_FAILED, "said nothing"),
    ],
)
def test_errors_are_explained(lines: list[str], reason: Reason, said: str) -> None:
    found, sentence = tool.explain(lines)
    assert found is reason
    assert said in sentence
    assert sentence.endswith(".")


async def test_last_lines_of_a_flood() -> None:
    stream = asyncio.StreamReader()
    seen: list[str] = []
    stream.feed_data(b"".join(b"\x1b[1mpy-spy>\x1b[0m line %d\n" % number for number in range(1000)) + b"x" * 100_000)
    stream.feed_eof()
    kept = await tool.last_lines(stream, seen.append)
    assert seen[0] == "line 0"
    assert len(kept) == tool.LINES_KEPT
    assert len(kept[-1]) <= tool.LINE_BYTES_MAX


async def test_who_prints_without_end_is_not_read_without_end() -> None:
    stream = asyncio.StreamReader()
    said, others = [], []

    async def flood() -> None:
        while not said:
            others.append(stream.feed_data(b"a\n" * 2048))
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    await tool.last_lines(stream, too_much=lambda: said.append("too much"))
    await flooding
    assert said == ["too much"]
    assert len(others) <= SAMPLER_WORDS_BYTES_MAX // 4096 + 2  # others had their turns


@needs_ptrace
async def test_samplers_that_do_not_go_are_counted_and_reaped_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "REAP_SECONDS", 0.0)
    monkeypatch.setattr(tool, "_LEFT_LOOK_SECONDS", 0.0)
    with running(SPIN) as target:
        found = await asyncio.to_thread(confine, process_of(target), False)
        confinement = dataclasses.replace(found, warden=False)
        job = await tool.spawn(Path("/bin/sh"), ["-c", "echo ready; while :; do :; done"], confinement)
        assert job.stdout is not None
        assert await job.stdout.readline() == b"ready\n"
        # As for one that waits for a dead disk; asyncio kills it, too, when its transport is closed.
        for killer in (job, tool._transport(job).get_extra_info("subprocess")):
            monkeypatch.setattr(killer, "kill", lambda: None)
        await tool.reap(job)
        await asyncio.sleep(0)
        assert tool._left[confinement.uid] == 1
        monkeypatch.setitem(tool._left, confinement.uid, SAMPLERS_LEFT_MAX)
        with pytest.raises(OSError, match="have not gone"):
            await tool.spawn(Path("/bin/sh"), [], confinement)
        os.kill(job.pid, signal.SIGKILL)
        await eventually(lambda: tool._left[confinement.uid] == SAMPLERS_LEFT_MAX - 1)


@needs_ptrace
async def test_limits_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_LOG", "trace")
    with running(SPIN) as target:
        script = "ulimit -f; ulimit -Hf; ulimit -c; ulimit -Hd; pwd; echo $RUST_LOG$HOME"
        job = await tool.spawn(Path("/bin/sh"), ["-c", script], confine(process_of(target), native=False))
        said, _ = await job.communicate()
        await tool.reap(job)
    assert said.split() == [b"0", b"0", b"0", b"%d" % (SAMPLER_MEMORY_BYTES >> 10), b"/"]


async def test_launcher_of_a_daemon_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with running(SPIN) as target:
        job = await tool.spawn(Path("/bin/sh"), ["-c", "echo started"], confine(process_of(target), native=False))
        said, _ = await job.communicate()
        await tool.reap(job)
    assert (job.returncode, said) == (1, b"")


async def test_programs_that_cannot_be_confined_are_named(tmp_path: Path) -> None:
    with running(SPIN) as target:
        for path, why in (
            (program(tmp_path, "exit 0"), "a program, not a script"),
            (tmp_path / "gone", "No such file"),
        ):
            job = await tool.spawn(path, [], confine(process_of(target), native=False))
            _, said = await job.communicate()
            await tool.reap(job)
            reason, sentence = tool.explain(said.decode().splitlines())
            assert (job.returncode, reason) == (1, Reason.NOT_PERMITTED)
            assert why in sentence
            assert str(path) in sentence


def test_cpu_time_of_a_process() -> None:
    before = tool.cpu_seconds(os.getpid())
    if before is None:
        pytest.skip("this kernel keeps no schedstat")
    while tool.cpu_seconds(os.getpid()) == before:
        pass
    assert tool.cpu_seconds(1 << 30) is None


async def test_who_waits_for_its_end_does_not_wake_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    polls = AsyncMock(wraps=asyncio.sleep)
    monkeypatch.setattr(asyncio, "sleep", polls)
    waits = asyncio.ensure_future(tool.gone(process))
    await asyncio.wait([waits], timeout=5 * tool._GONE_LOOK_SECONDS)
    assert not waits.done()
    assert not polls.called
    assert process.stdin is not None
    process.stdin.close()
    await waits
    assert process.returncode == 0


async def test_who_no_longer_waits_for_its_end_leaves_no_descriptor() -> None:
    process = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    with nothing_left_open():
        assert not await tool.ended(process, 0.01)
    await tool.reap(process)


HOLDS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]), int(sys.argv[1])))
held = bytearray(16 << 20)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("limit", "full"), [(SAMPLER_MEMORY_BYTES, False), (SAMPLER_MEMORY_BYTES // 2, True)])
def test_a_sampler_is_full_by_the_limit_that_it_has(limit: int, full: bool) -> None:
    """A daemon with a limit of its own gives its samplers no more."""
    command = [sys.executable, "-c", HOLDS, str(limit)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert tool.full(process.pid, native=False) == full
        process.communicate()
    assert not tool.full(process.pid, native=False)

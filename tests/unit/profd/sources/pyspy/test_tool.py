"""py-spy the program: finding it, its version, its errors."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from profd.capture.model import Reason
from profd.errors import Unavailable
from profd.sources.pyspy import tool


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


async def test_limits_of_the_child(tmp_path: Path) -> None:
    job = await tool.spawn(program(tmp_path, "ulimit -f; ulimit -c; echo $RUST_LOG; exec sleep 0"), [], 1 << 20)
    said, _ = await job.communicate()
    assert said.split() == [b"2048", b"0"] or said.split() == [b"1024", b"0"]  # blocks of 512 or 1024
    assert job.returncode == 0


async def test_launcher_of_a_daemon_that_is_gone(tmp_path: Path) -> None:
    started = tmp_path / "started"
    path = program(tmp_path, f"touch {started}")
    script = Path(tool.__file__).with_name("launch.py")
    job = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", str(script), "1", "0", "0", str(path))
    assert await job.wait() == 1
    assert not started.exists()


def test_cpu_time_of_a_process() -> None:
    before = tool.cpu_seconds(os.getpid())
    if before is None:
        pytest.skip("this kernel keeps no schedstat")
    while tool.cpu_seconds(os.getpid()) == before:
        pass
    assert tool.cpu_seconds(1 << 30) is None

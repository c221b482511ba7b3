"""Stacks of a process as samplers see them: profd's own reader (`profd-sampler stacks`), confined, and py-spy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from profd.sources.pyspy import tool
from profd.sources.pyspy.confinement import SAME, Confinement

from tests.support.python_jobs import ready

Frame = tuple[str, str, int]
"""Function, file, first line."""
Stacks = dict[int, list[tuple[Frame, ...]]]
"""By threads as Python knows them: what was seen, in order, outermost first; the first frame names the thread."""

_VERSIONS: Final = ("3.11", "3.12", "3.13")


@dataclass(frozen=True, slots=True)
class Read:
    """What a sampler said and wrote."""

    status: int
    said: str
    complaints: str
    written: bytes

    @property
    def stacks(self) -> Stacks:
        """Every stack, once for each time that it came about."""
        return stacks_of(self.written)


def interpreters(*versions: str) -> list[Any]:
    """Those of this host that have these versions, as parameters of tests; the others are skipped."""
    return [
        pytest.param(found, id=version)
        if (found := _interpreter(version))
        else pytest.param("", id=version, marks=pytest.mark.skip(reason=f"no Python {version} is installed"))
        for version in versions or _VERSIONS
    ]


def _interpreter(version: str) -> str:
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin")) + [
        Path(folder) for folder in os.environ.get("PATH", "").split(":")
    ]
    return next((str(program) for folder in folders if (program := folder / f"python{version}").is_file()), "")


@contextlib.contextmanager
def program(interpreter: str, text: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """It has printed `ready`; killed at the end. Its file is `program.py`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(text, "utf-8")
        with ready(interpreter, str(path), *arguments) as job:
            yield job


async def read(
    pid: int, hz: float, seconds: float, begun: Callable[[], Awaitable[object]] | None = None, interrupted: bool = True
) -> Read:
    """With profd's own reader, until `seconds` have passed, or until `begun`, which is awaited when it samples."""
    reading, writing = os.pipe()
    confinement = Confinement(pid, SAME, SAME, native=False, warden=False, output=writing)
    try:
        sampler = await tool.spawn(None, [str(writing), f"{hz:g}", f"{seconds:g}"], confinement, tool.READER)
    finally:
        os.close(writing)
    assert sampler.stdout is not None
    assert sampler.stderr is not None
    with os.fdopen(reading, "rb") as pipe:
        writes = asyncio.create_task(asyncio.to_thread(pipe.read))
        first = await sampler.stdout.readline()
        if begun is not None:
            await begun()
            if interrupted:
                await tool.interrupt(sampler, sampling=True)
        said, complaints, written = await asyncio.gather(sampler.stdout.read(), sampler.stderr.read(), writes)
        await sampler.wait()
    await tool.reap(sampler)
    return Read(sampler.returncode or 0, (first + said).decode(), complaints.decode(), written)


async def read_by_pyspy(pid: int, hz: int, seconds: int) -> Read:
    """The same with py-spy, unconfined."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "samples.json")
        pyspy = await asyncio.create_subprocess_exec(
            *(str(tool.find()), "record", "--pid", str(pid), "--format", "chrometrace", "--output", str(path)),
            *("--rate", str(hz), "--duration", str(seconds), "--idle", "--threads", "--function", "--full-filenames"),
            *("--hideprogress", "--nonblocking"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complaints = await pyspy.communicate()
        return Read(pyspy.returncode or 0, said.decode(), complaints.decode(), path.read_bytes())


def stacks_of(written: bytes) -> Stacks:
    """Of a chrometrace. Raises AssertionError if a frame ends that is not the innermost one."""
    found: Stacks = {}
    opened: dict[int, list[Frame]] = {}
    last: dict[int, int] = {}
    for record in msgspec.json.decode(written):
        thread, frame = record["tid"], (record["name"], record["args"]["filename"], record["args"]["line"])
        stack = opened.setdefault(thread, [])
        if stack and last[thread] != record["ts"]:
            found.setdefault(thread, []).append(tuple(stack))
        last[thread] = record["ts"]
        if record["ph"] == "B":
            stack.append(frame)
        elif stack[-1] == frame:
            stack.pop()
        else:  # py-spy ends what is open when it writes from the outside in, or the other way round
            stack.remove(frame)
    return found

"""Processes that become another program, root's for one, between their acceptance and the last look at them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.errors import Denied, NotFound
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.base import Session
from profd.sources.pyspy import tool
from profd.sources.pyspy.recording import PySpyRecorder
from profd.sources.pyspy.source import PySpySource
from profd.sources.pyspy.where import stacks
from profd.targets import procfs
from profd.targets.identity import Accepted
from profd.targets.process import ProcessId

from tests.support import other_program
from tests.support.other_program import NOBODY, Target, needs_setuid
from tests.support.python_jobs import SAMPLED_NS
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = needs_setuid

LONG = Options(duration_ns=120_000_000_000)
SHORT = Options(duration_ns=SAMPLED_NS)
WORDS = ["setuid", "exec"]


@pytest.fixture
async def source() -> AsyncIterator[PySpySource]:
    pyspy = PySpySource()
    await pyspy.open()
    yield pyspy
    await pyspy.close()


@pytest.fixture
def target() -> Iterator[Target]:
    with other_program.target() as found:
        yield found


class Begins:
    """A capture that begins when the test says so (`--start-in`)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting, self.now = asyncio.Event(), asyncio.Event()

        async def wait(recorder: PySpyRecorder) -> bool:
            self.waiting.set()
            await self.now.wait()
            return False

        monkeypatch.setattr(PySpyRecorder, "_stopped_before_start", wait)


def nothing_of(recording: Recording, folder: Path) -> None:
    assert (recording.state, recording.reason, recording.files) == (State.FAILED, Reason.TARGET_ENDED, [])
    assert "another program" in recording.message
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("sibling", [False, True])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("word", WORDS)
async def test_before_its_window(
    source: PySpySource,
    target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    native: bool,
    sibling: bool,
) -> None:
    begins = Begins(monkeypatch)
    session = Session("capture", tmp_path, asyncio.Event(), lambda state, doing: None)
    options = dataclasses.replace(SHORT, native=native)
    task = asyncio.create_task(source.record(target.process(), options, session))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await begins.waiting.wait()
    if sibling:
        target.say("sibling")
    target.say(word)
    begins.now.set()
    nothing_of(await task, tmp_path)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("word", WORDS)
async def test_in_its_window(source: PySpySource, target: Target, tmp_path: Path, native: bool, word: str) -> None:
    began = asyncio.Event()

    def report(state: State, doing: str) -> None:
        if state is State.RECORDING:
            began.set()

    session = Session("capture", tmp_path, asyncio.Event(), report)
    options = dataclasses.replace(LONG, native=native)
    task = asyncio.create_task(source.record(target.process(), options, session))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await began.wait()
    target.say(word)
    nothing_of(await task, tmp_path)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("word", WORDS)
async def test_while_its_sampler_starts(
    source: PySpySource, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool, word: str
) -> None:
    spawns = tool.spawn

    async def spawn(*given: Any) -> asyncio.subprocess.Process:
        target.say(word)
        return await spawns(*given)

    monkeypatch.setattr(tool, "spawn", spawn)
    session = Session("capture", tmp_path, asyncio.Event(), lambda state, doing: None)
    nothing_of(await source.record(target.process(), dataclasses.replace(SHORT, native=native), session), tmp_path)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("word", WORDS)
async def test_where(target: Target, monkeypatch: pytest.MonkeyPatch, native: bool, word: str) -> None:
    spawns = tool.spawn
    process = target.process()

    async def spawn(*given: Any) -> asyncio.subprocess.Process:
        target.say(word)
        return await spawns(*given)

    monkeypatch.setattr(tool, "spawn", spawn)
    with pytest.raises(NotFound, match="another program"):
        await stacks(process, native)


async def test_where_before_it_is_accepted(target: Target) -> None:
    process = target.process()
    target.say("setuid")
    with pytest.raises(NotFound, match="another program"):
        await stacks(process)


async def test_a_setuid_program_that_has_given_its_rights_up(source: PySpySource, tmp_path: Path) -> None:
    """It is nobody's by its ids, and by the kernel's rule not for nobody to look into: it may know what root knows."""
    dropping = f"import os; os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); os.setresuid({NOBODY}, {NOBODY}, {NOBODY})"
    with other_program.target(f"{dropping}\n{other_program.SECRET}") as target:
        target.say("setuid")
        process = target.process()
        assert (process.uid, process.private) == (NOBODY, True)
        offer = source.offer(process)
        assert (offer.can, offer.why_code) == (False, Reason.NOT_PERMITTED)
        assert "not dumpable" in offer.reason
        with pytest.raises(Denied, match="not dumpable"):
            await stacks(process)
        # A capture or a look of root's: capture/planner.py
        seen = dataclasses.replace(process, private=False, unrestricted=True)
        assert source.offer(seen).can
        assert any(frame.function == "secrets" for thread in await stacks(seen) for frame in thread.frames)


async def test_one_that_becomes_private_before_it_is_accepted(source: PySpySource, tmp_path: Path) -> None:
    """It is another program by the time that its sampler begins: beside a recording after a quarter of a second or
    five, and of many that are looked at, when it is its turn.
    """
    dropping = f"import os; os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); os.setresuid({NOBODY}, {NOBODY}, {NOBODY})"
    with other_program.target(f"{dropping}\n{other_program.SECRET}") as target:
        process = target.process()
        assert not process.private
        target.say("setuid")
        session = Session("capture", tmp_path, asyncio.Event(), lambda state, doing: None)
        recording = await source.record(process, SHORT, session)
        assert (recording.state, recording.reason) == (State.REFUSED, Reason.NOT_PERMITTED)
        assert "not dumpable" in recording.message
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(Denied, match="not dumpable"):
            await stacks(process)


@pytest.fixture
def execs_as_it_is_accepted(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two facts of the look that accepts it, so that it seems to be nobody's, and private."""
    accept, files_of = Accepted.__init__, procfs.files_of

    def owner(pid: int) -> int:
        monkeypatch.setattr(procfs, "files_of", files_of)
        target.say("setuid")
        return files_of(pid)

    def accepting(accepted: Accepted, process: ProcessId, uid: int) -> None:
        monkeypatch.setattr(procfs, "files_of", owner)
        accept(accepted, process, uid)

    monkeypatch.setattr(Accepted, "__init__", accepting)


@pytest.mark.usefixtures("execs_as_it_is_accepted")
async def test_one_that_execs_as_it_is_accepted(source: PySpySource, target: Target, tmp_path: Path) -> None:
    """It is told as any exec: the rights that it seems to have are of no program that there was."""
    session = Session("capture", tmp_path, asyncio.Event(), lambda state, doing: None)
    recording = await source.record(target.process(), SHORT, session)
    assert (recording.state, recording.reason) == (State.FAILED, Reason.TARGET_ENDED)
    assert "another program" in recording.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("execs_as_it_is_accepted")
async def test_stacks_of_one_that_execs_as_it_is_accepted(target: Target) -> None:
    with pytest.raises(NotFound, match="another program"):
        await stacks(target.process())


async def test_its_own_program_is_sampled(source: PySpySource, target: Target, tmp_path: Path) -> None:
    session = Session("capture", tmp_path, asyncio.Event(), lambda state, doing: None)
    recording = await source.record(target.process(), SHORT, session)
    assert recording.state is State.DRAINING, recording.message
    assert "own" in Path(recording.files[0].path).read_text()
    assert any(frame.function == "own" for thread in await stacks(target.process()) for frame in thread.frames)

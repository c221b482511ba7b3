"""Samplers of one capture of many processes: few begin at once, and one user has so many."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.base import Offer, Session
from profd.sources.pyspy import starts
from profd.sources.pyspy.recording import PySpyRecorder, Sampling
from profd.sources.pyspy.source import PySpySource
from profd.sources.pyspy.starts import SAMPLERS, Starts
from profd.targets.identity import Accepted
from profd.targets.process import Process

from tests.support.python_jobs import let_scripts_play_py_spy, seen
from tests.support.waiting import eventually

# One that begins when it is told to, by a file.
PY_SPY = """#!{python}
import os, signal, sys, time
from pathlib import Path
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
Path({folder!r}, f"started-{{os.getpid()}}").touch()
while not os.path.exists({go!r}) and not stopped: time.sleep(0.005)
print("py-spy> Sampling process 100 times a second for 10 seconds. Press Control-C to exit.", flush=True)
while not stopped: signal.sigtimedwait([], 0.01)
Path(sys.argv[sys.argv.index("--output") + 1]).write_text("[]")
print("py-spy> Wrote raw flamegraph data. Samples: 1 Errors: 0", flush=True)
"""


_CAN = Offer(True)


def me() -> Process:
    return seen(os.getpid())


class Watched:
    """A session that knows what was said of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.recording, self.waiting = asyncio.Event(), asyncio.Event()
        self.session = Session("capture", folder, asyncio.Event(), self._report)

    def _report(self, state: State, doing: str) -> None:
        if state is State.RECORDING:
            self.recording.set()
        if doing.startswith("waiting for other"):
            self.waiting.set()


async def test_a_sampler_waits_until_others_have_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, go = tmp_path / "py-spy", tmp_path / "go"
    program.write_text(PY_SPY.format(python=sys.executable, folder=str(tmp_path), go=str(go)))
    program.chmod(0o755)
    let_scripts_play_py_spy(monkeypatch)
    monkeypatch.setattr(starts, "PYSPY_START_HELD_SECONDS", 3600.0)  # however slow the machine is
    shared, process = Starts(places=1), me()
    waits: list[float] = []
    shared.on_waited = waits.append

    async def record(watched: Watched) -> Recording:
        with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
            sampling = Sampling(window_ns=10**12, hz=1, native=False)
            return await PySpyRecorder(program, process, sampling, watched.session, accepted, shared).run()

    first, second, third = (Watched(tmp_path / name) for name in ("first", "second", "third"))
    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(record(first))
        await eventually(lambda: list(tmp_path.glob("started-*")))
        two, three = (tasks.create_task(record(watched)) for watched in (second, third))
        await second.waiting.wait()
        await third.waiting.wait()
        third.session.stop.set()
        assert (await three).state is State.CANCELLED
        assert len(list(tmp_path.glob("started-*"))) == 1
        assert len(waits) == 2  # the first did not have to, the third gave up
        go.touch()
        await first.recording.wait()
        await second.recording.wait()  # while the first one is not over
        assert not one.done()
        first.session.stop.set()
        second.session.stop.set()
    assert (one.result().reason, two.result().reason) == (Reason.NONE, Reason.NONE)


async def test_whose_turn_never_comes_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "PYSPY_TURN_SECONDS", 0.01)
    shared, process = Starts(places=1), me()
    let_go = await shared.turn(7, Watched(tmp_path / "other").session)
    assert let_go is not None
    with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
        sampling, watched = Sampling(window_ns=1, hz=1, native=False), Watched(tmp_path / "mine")
        recording = await PySpyRecorder(Path("/nowhere"), process, sampling, watched.session, accepted, shared).run()
    assert (recording.state, recording.reason) == (State.BUSY, Reason.OVER_LIMIT)
    assert "had no turn" in recording.message
    let_go()


async def test_one_user_has_so_many_samplers_and_the_rest_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = PySpySource(program=Path("/bin/true"))
    process = replace(me(), uid=4242)
    with contextlib.ExitStack() as held:
        for _ in range(SAMPLERS.each):
            held.enter_context(source.starts.one_more(4242))
        monkeypatch.setattr(PySpySource, "offer", lambda self, process: _CAN)
        recording = await source.record(process, Options(duration_ns=1), Watched(tmp_path / "s").session)
        assert (recording.state, recording.reason) == (State.BUSY, Reason.OVER_LIMIT)
        assert f"{SAMPLERS.each} of {SAMPLERS.each} processes that are sampled" in recording.message
        held.enter_context(source.starts.one_more(4243))  # others have theirs

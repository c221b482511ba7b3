"""Recordings that are stopped as soon as they have begun, with a program that says and does what py-spy does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest
from profd.model.capture import Reason, Recording, State
from profd.sources.base import Session
from profd.sources.pyspy import tool
from profd.sources.pyspy.recording import PySpyRecorder, Sampling
from profd.targets.identity import Accepted

from tests.support.python_jobs import let_scripts_play_py_spy, seen

# It says that it samples before it catches SIGINT, as py-spy does.
PY_SPY = """#!{python}
import os, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.SIG_DFL)
stopped = []
print("py-spy> Sampling process 100 times a second for 10 seconds. Press Control-C to exit.", flush=True)
while not os.path.exists({caught!r}): pass
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
while not stopped: signal.sigtimedwait([], 0.01)
Path(sys.argv[sys.argv.index("--output") + 1]).write_text("[]")
print("py-spy> Wrote raw flamegraph data. Samples: {samples} Errors: 0", flush=True)
"""


async def stopped_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch, samples: int) -> Recording:
    """A recording that is stopped when it has begun; py-spy catches SIGINT once it was seen that it does not."""
    program, caught = folder / "py-spy", folder / "caught"
    program.write_text(PY_SPY.format(python=sys.executable, caught=str(caught), samples=samples))
    program.chmod(0o755)
    let_scripts_play_py_spy(monkeypatch)
    looks = tool.catches

    def catches(pid: int) -> bool:
        does = looks(pid)
        caught.touch()
        return does

    monkeypatch.setattr(tool, "catches", catches)
    monkeypatch.setattr(tool, "CATCH_SECONDS", 60.0)
    monkeypatch.setattr(PySpyRecorder, "_seconds", lambda self: 0.5)  # however slow the machine is
    stop = asyncio.Event()
    process = seen(os.getpid())

    def report(state: State, doing: str) -> None:
        if state is State.RECORDING:
            stop.set()

    session = Session("capture", folder, stop, report)
    sampling = Sampling(window_ns=10**12, hz=1, native=False)
    with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
        return await PySpyRecorder(program, process, sampling, session, accepted).run()


LATE = """#!{python}
import os, signal, sys
from pathlib import Path
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
print("py-spy> Sampling process 100 times a second for 10 seconds. Press Control-C to exit.", flush=True)
while not stopped: signal.sigtimedwait([], 0.01)
print("py-spy> {late}s behind in sampling, results may be inaccurate. Try reducing the sampling rate", flush=True)
Path(sys.argv[sys.argv.index("--output") + 1]).write_text("[]")
print("py-spy> Wrote raw flamegraph data. {counts}", flush=True)
"""


async def late_by(
    folder: Path, monkeypatch: pytest.MonkeyPatch, late: str, *, asked: bool, counts: str = "Samples: 1 Errors: 0"
) -> Recording:
    (folder / "py-spy").write_text(LATE.format(python=sys.executable, late=late, counts=counts))
    (folder / "py-spy").chmod(0o755)
    let_scripts_play_py_spy(monkeypatch)
    process = seen(os.getpid())
    session = Session("capture", folder, asyncio.Event(), lambda state, doing: None)
    sampling = Sampling(window_ns=1, hz=100, native=False, asked=asked)
    with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
        recorder = PySpyRecorder(folder / "py-spy", process, sampling, session, accepted, cores=frozenset({0}))
        return await recorder.run()


@pytest.mark.parametrize("late", ["1.2.3", "9" * 400, ".", ""])
async def test_what_it_says_of_its_lateness_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    recording = await late_by(tmp_path, monkeypatch, late, asked=True)
    assert (recording.reason, recording.not_honoured) == (Reason.NONE, [])


@pytest.mark.parametrize("asked", [True, False])
async def test_a_rate_that_was_not_kept_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    recording = await late_by(tmp_path, monkeypatch, "100000000.00", asked=asked)
    assert recording.reason is Reason.NONE, recording.message
    told, other = recording.warnings, recording.not_honoured
    if asked:
        told, other = other, told
    (sentence,) = told
    assert "sampled 0 times a second, not 100: its sampler, on the 1 of this host's cores" in sentence
    assert other == []


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        (7, "None of 7 stacks of process {pid} could be read whole in 0.5 s: they changed meanwhile"),
        (0, "No stack of process {pid} was read in 0.5 s: py-spy had no turn, as on a busy host, or it runs no Python"),
    ],
)
async def test_a_process_of_which_no_stack_was_read_is_not_said_to_run_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: int, why: str
) -> None:
    """GIVEN stacks that all changed while they were read, or none that was looked at THEN the answer tells which."""
    monkeypatch.setattr(PySpyRecorder, "_seconds", lambda self: 0.5)
    recording = await late_by(tmp_path, monkeypatch, "", asked=True, counts=f"Samples: 0 Errors: {errors}")
    assert (recording.state, recording.reason) == (State.FAILED, Reason.SOURCE_FAILED)
    assert recording.message.startswith(why.format(pid=os.getpid())), recording.message


async def test_py_spy_that_does_not_catch_the_signal_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = await stopped_at_once(tmp_path, monkeypatch, samples=1)
    assert (recording.state, recording.reason) == (State.DRAINING, Reason.NONE), recording.message
    assert [file.format for file in recording.files] == ["pyspy"]


async def test_a_stop_before_the_first_sample_is_due_cancels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = await stopped_at_once(tmp_path, monkeypatch, samples=0)
    assert (recording.state, recording.reason, recording.files) == (State.CANCELLED, Reason.CANCELLED_BY_USER, [])
    assert "was stopped before" in recording.message

"""Samples beside a recording: what is missing of them takes nothing from it; alone, they are the trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
from profd.attached.agents.protocol import Hello
from profd.attached.sdk import samples
from profd.attached.sdk.pace import Beside
from profd.attached.sdk.samples import Samples, Wanted, wanted, why_not
from profd.errors import Unavailable
from profd.model.capture import Options, RawFile, Reason, Recording, State
from profd.sources.base import Offer, Plan, Session, Source
from profd.targets.process import Process, ProcessId

from tests.support.waiting import eventually

SECOND = 1_000_000_000
PROCESS = Process(ProcessId(7, 1), ppid=1, uid=0, gid=0, user="root", command="python")
ASKED = Options(duration_ns=5, iterations=3, shapes=True, sample_hz=50.0, start_at_ns=9)
WANTED = Wanted(50.0)


@dataclass
class Sampler(Source):
    """Says and does what it is told."""

    name: ClassVar[str] = "pyspy"
    recorded: Callable[[Session], Awaitable[Recording]] | None = None
    offered: Offer = field(default_factory=lambda: Offer(True))
    planned: Plan = field(default_factory=lambda: Plan(True))
    asked: list[Options] = field(default_factory=list)

    def offer(self, process: Process) -> Offer:
        return self.offered

    def plan(self, process: Process, options: Options) -> Plan:
        self.asked.append(options)
        return self.planned

    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        self.asked.append(options)
        assert self.recorded is not None
        return await self.recorded(session)


async def until_stopped(session: Session) -> Recording:
    await session.stop.wait()
    return Recording(files=[RawFile("samples.json", "pyspy")], warnings=["3 dropped"], versions={"py-spy": "0.4"})


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session("c1", tmp_path, asyncio.Event(), lambda state, doing: None)


def recording() -> Recording:
    return Recording(files=[RawFile("chunks.pfc", "chunks")])


def test_why_there_are_none() -> None:
    assert why_not(None, PROCESS, ASKED, 50.0) == "this source records no stacks beside its events"
    blind = Sampler(offered=Offer(False, "process 7 may not be read.", "Run profd as root."))
    assert why_not(blind, PROCESS, ASKED, 50.0) == "process 7 may not be read. Run profd as root."
    assert why_not(Sampler(planned=Plan(False, "too many")), PROCESS, ASKED, 50.0) == "too many"
    assert why_not(Sampler(), PROCESS, ASKED, 50.0) == ""


TORCH = Hello((1, 1), 7, framework="torch 2.9", can=frozenset({"ranges", "observer"}))
PLAIN = Hello((1, 1), 7, framework="", can=frozenset({"ranges"}))


@pytest.mark.parametrize(
    ("options", "hello", "expected"),
    [
        (Options(duration_ns=SECOND, sample_hz=50.0), TORCH, Wanted(50.0)),
        (Options(duration_ns=SECOND), PLAIN, Wanted(9.0, asked=False)),
        (Options(duration_ns=SECOND), replace(TORCH, can=PLAIN.can), Wanted(9.0, asked=False)),
        (Options(), PLAIN, Wanted(9.0, asked=False, after_seconds=0.5)),
        (Options(duration_ns=SECOND), TORCH, Wanted(8, asked=False, after_seconds=0.25, if_quiet=True)),
        (Options(duration_ns=3 * SECOND), TORCH, Wanted(8, asked=False, missed=False)),
        (Options(), TORCH, Wanted(8, asked=False, after_seconds=0.25, if_quiet=True, worth_seconds=2.0)),
        (
            Options(duration_ns=SECOND, stacks=True),
            PLAIN,
            Wanted(9.0, asked=False, spare=True, after_seconds=0.25, if_quiet=True),
        ),
        (Options(duration_ns=SECOND // 10), PLAIN, None),
    ],
)
def test_what_is_wanted(options: Options, hello: Hello, expected: Wanted | None) -> None:
    assert wanted(options, hello, lambda: 9.0, lambda: Beside(8, window_seconds=2.0)) == expected
    if expected is not None and expected.if_quiet:
        assert wanted(options, hello, lambda: 9.0, lambda: None) == replace(expected, hz=9.0, worth_seconds=None)


@pytest.mark.parametrize(
    ("arrived", "worth", "files"),
    [(0, None, ["chunks", "pyspy"]), (1, None, ["chunks"]), (1, 0.01, ["chunks", "pyspy"]), (1, 1e6, ["chunks"])],
)
async def test_what_records_needs_no_sampler_before_it_costs_little(
    session: Session, arrived: int, worth: float | None, files: list[str]
) -> None:
    sampler = Sampler(until_stopped)
    wants = Wanted(9.0, asked=False, after_seconds=0.01, if_quiet=True, worth_seconds=worth)
    beside = Samples(sampler, PROCESS, ASKED, session, wants)
    asked = []

    def how_many() -> int:
        asked.append(None)
        return arrived

    beside.arrived = how_many
    await eventually(lambda: sampler.asked if "pyspy" in files else asked)
    whole = recording()
    await beside.join(whole)
    await beside.end()
    assert [file.format for file in whole.files] == files
    assert (whole.warnings, whole.not_honoured) == (["3 dropped"] if "pyspy" in files else [], [])


async def test_samples_that_are_not_needed_are_not_missed(session: Session) -> None:
    beside = Samples(Sampler(fails), PROCESS, ASKED, session, Wanted(9.0, asked=False, missed=False))
    whole = recording()
    await beside.join(whole)
    await beside.end()
    assert (whole.warnings, whole.not_honoured) == ([], [])


async def test_samples_beside_calls_are_kept_where_there_were_none(session: Session) -> None:
    spare = Wanted(9.0, asked=False, spare=True)
    for whole, files in (
        (recording(), ["chunks"]),
        (Recording(State.FAILED, Reason.NO_FILE, "nothing was recorded"), ["pyspy"]),
    ):
        beside = Samples(Sampler(until_stopped), PROCESS, ASKED, session, spare)
        await beside.join(whole)
        await beside.end()
        assert [file.format for file in whole.files] == files


async def test_an_empty_recording_says_why_it_has_no_samples_either(session: Session) -> None:
    beside = Samples(Sampler(fails), PROCESS, ASKED, session, Wanted(9.0, asked=False))
    empty = Recording(State.FAILED, Reason.NO_FILE, "nothing was recorded: no range ran")
    await beside.join(empty)
    await beside.end()
    assert empty.not_honoured == []
    assert empty.message == (
        "nothing was recorded: no range ran; no samples either: process 7 ended before its first sample"
    )


async def test_the_window_of_the_recording_is_that_of_the_samples(session: Session) -> None:
    sampler = Sampler(until_stopped)
    heard = []
    session.report = lambda state, doing: heard.append(state)
    beside = Samples(sampler, PROCESS, ASKED, session, WANTED)
    around = beside.around(session)
    around.report(State.RECORDING, "")
    await asyncio.sleep(0)
    around.report(State.DRAINING, "")
    whole = recording()
    await beside.join(whole)
    await beside.end()
    assert [file.format for file in whole.files] == ["chunks", "pyspy"]
    assert (whole.not_honoured, whole.warnings, whole.versions) == ([], ["3 dropped"], {"py-spy": "0.4"})
    assert heard == [State.RECORDING, State.DRAINING]
    assert not session.stop.is_set()
    # What only the recording can do is not asked of a sampler.
    assert sampler.asked == [Options(duration_ns=5, start_at_ns=9, sample_hz=50.0)]


async def fails(session: Session) -> Recording:
    return Recording(State.FAILED, Reason.TARGET_ENDED, "process 7 ended before its first sample.")


async def raises(session: Session) -> Recording:
    raise Unavailable("py-spy is gone")


async def falls_short(session: Session) -> Recording:
    return Recording(reason=Reason.TRUNCATED, message="the rest is missing.", files=[RawFile("s", "pyspy")])


@pytest.mark.parametrize(
    ("recorded", "said", "files"),
    [
        (fails, "samples: process 7 ended before its first sample.", 1),
        (raises, "samples: py-spy is gone", 1),
        (falls_short, "samples: the rest is missing.", 2),
    ],
)
async def test_what_is_missing_is_not_honoured(
    session: Session, recorded: Callable[[Session], Awaitable[Recording]], said: str, files: int
) -> None:
    beside = Samples(Sampler(recorded), PROCESS, ASKED, session, WANTED)
    whole = recording()
    await beside.join(whole)
    await beside.end()
    assert (whole.state, whole.reason, whole.not_honoured, len(whole.files)) == (
        State.DRAINING,
        Reason.NONE,
        [said],
        files,
    )


@pytest.mark.parametrize("asked", [True, False])
async def test_a_rate_that_was_not_kept_is_told_of_the_recording(session: Session, asked: bool) -> None:
    async def late(session: Session) -> Recording:
        await session.stop.wait()
        return Recording(files=[RawFile("samples.json", "pyspy")], not_honoured=["samples: twice a second, not 50"])

    beside = Samples(Sampler(recorded=late), PROCESS, ASKED, session, replace(WANTED, asked=asked))
    whole = recording()
    await beside.join(whole)
    told, other = (whole.not_honoured, whole.warnings) if asked else (whole.warnings, whole.not_honoured)
    assert (told, other) == (["samples: twice a second, not 50"], [])


async def test_a_sampler_that_does_not_end_is_left(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "STOP_SECONDS", 0.01)
    ended = asyncio.Event()

    async def forever(session: Session) -> Recording:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    beside = Samples(Sampler(forever), PROCESS, ASKED, session, WANTED)
    whole = recording()
    await beside.join(whole)
    assert whole.not_honoured == ["samples: they were not written within 0 s"]
    await beside.end()
    assert ended.is_set()


async def test_a_recording_that_came_to_nothing_has_no_samples(session: Session) -> None:
    beside = Samples(Sampler(until_stopped), PROCESS, ASKED, session, WANTED)
    nothing = Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, "stopped")
    await beside.join(nothing)
    await beside.end()
    assert (nothing.files, nothing.not_honoured) == ([], [])


@pytest.mark.parametrize(
    ("reason", "message", "left"),
    [
        (Reason.NO_FILE, "nothing was recorded: no range ran", (Reason.NONE, "")),
        (Reason.TARGET_ENDED, "the process ended", (Reason.TARGET_ENDED, "the process ended")),
    ],
)
async def test_where_no_event_was_recorded_samples_are_the_trace(
    session: Session, reason: Reason, message: str, left: tuple[Reason, str]
) -> None:
    beside = Samples(Sampler(until_stopped), PROCESS, ASKED, session, WANTED)
    empty = Recording(State.FAILED, reason, message)
    await beside.join(empty)
    await beside.end()
    assert [file.format for file in empty.files] == ["pyspy"]
    assert (empty.state, empty.reason, empty.message) == (State.DRAINING, *left)
    assert "no range or operator ran in the window: the trace has samples alone" in empty.warnings


async def test_of_operators_that_nothing_recorded_it_is_not_said_that_none_ran(session: Session) -> None:
    beside = Samples(Sampler(until_stopped), PROCESS, ASKED, session, WANTED)
    empty = Recording(State.FAILED, Reason.NO_FILE, "nothing was recorded", not_honoured=["torch: no observer"])
    await beside.join(empty)
    await beside.end()
    assert (empty.state, empty.warnings) == (State.DRAINING, ["3 dropped"])


async def test_without_events_and_samples_it_stays_failed(session: Session) -> None:
    beside = Samples(Sampler(fails), PROCESS, ASKED, session, WANTED)
    empty = Recording(State.FAILED, Reason.NO_FILE, "nothing was recorded: no range ran")
    await beside.join(empty)
    await beside.end()
    assert (empty.state, empty.reason, empty.files) == (State.FAILED, Reason.NO_FILE, [])
    assert empty.not_honoured == ["samples: process 7 ended before its first sample."]


async def test_nothing_is_written_before_there_is_a_directory(session: Session) -> None:
    session.made = asyncio.get_running_loop().create_future()
    sampler = Sampler(until_stopped)
    beside = Samples(sampler, PROCESS, ASKED, session, WANTED)
    await asyncio.sleep(0)
    assert sampler.asked == []
    session.made.set_exception(OSError(28, "No space left on device"))
    whole = recording()
    await beside.join(whole)
    await beside.end()
    assert sampler.asked == []
    assert whole.not_honoured == ["samples: [Errno 28] No space left on device"]


async def stopped(_: Session) -> Recording:
    return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, "The capture was stopped before 7 was sampled.")


async def test_a_sampler_that_the_end_of_the_window_stopped_was_too_late(session: Session) -> None:
    """To the sampler somebody stopped it; nobody did."""
    beside = Samples(Sampler(stopped), PROCESS, ASKED, session, Wanted(9.0, asked=False))
    empty = Recording(State.FAILED, Reason.NO_FILE, "nothing was recorded")
    await beside.join(empty)
    await beside.end()
    assert "no samples either: the window was over before the first one" in empty.message

"""Every state with every event, then the paths that mean something, then random sequences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.capture import machine as m
from profd.capture.outcome import StoredTrace
from profd.capture.records import TargetRecord
from profd.limits import SAID_CHARACTERS_MAX
from profd.model.capture import Loss, RawFile, Reason, Recording, State
from profd.model.resident import Resident, ResidentLook
from profd.model.run_times import RunTimes

FILES = [RawFile("/journal/trace.json", "chrome")]


def target(**changes: Any) -> TargetRecord:
    record = TargetRecord("host", 100, 700, 1000, "alice", "python")
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def recording(**changes: Any) -> Recording:
    return Recording(**{"files": list(FILES), **changes})


EVENTS: dict[str, m.Event] = {
    "begin": m.Begin("kineto", 100),
    "decline": m.Decline(State.REFUSED, Reason.NO_SOURCE, "none"),
    "armed": m.Report(State.ARMED, "armed"),
    "recording": m.Report(State.RECORDING, "recording"),
    "draining": m.Report(State.DRAINING, "draining"),
    "nonsense": m.Report(State.STORED, "a source may not say this"),
    "stop": m.Stop(Reason.CANCELLED_BY_USER, "stopped by alice"),
    "ended": m.ProcessEnded(),
    "deadline": m.Expired(m.Timer.RECORDING),
    "stopping": m.Expired(m.Timer.STOPPING),
    "gone": m.Expired(m.Timer.ENDED),
    "storing": m.Expired(m.Timer.STORING),
    "recorded": m.Recorded(recording()),
    "empty": m.Recorded(Recording()),
    "broke": m.Broke(Reason.SOURCE_FAILED, "py-spy broke"),
    "stored": m.Stored(StoredTrace("t1", 5)),
    "retry": m.Retry(),
    "orphaned": m.Orphaned(),
    "taken over": m.TakenOver(()),
    "abandon": m.Abandon(Reason.DAEMON_RESTARTED, "restart"),
}

UNDER_WAY = (State.REQUESTED, State.ARMED, State.RECORDING, State.DRAINING)
LEGAL = {
    **{
        (state, event): result
        for state in UNDER_WAY
        for event, result in {
            "armed": max(state, State.ARMED),
            "recording": max(state, State.RECORDING),
            "draining": State.DRAINING,
            "stop": state,
            "ended": state,
            "deadline": state,
            "stopping": State.FAILED,
            "gone": state,
            "recorded": State.COLLATING,
            "empty": State.FAILED,
            "broke": State.FAILED,
            "abandon": State.FAILED,
        }.items()
    },
    (State.COLLATING, "storing"): State.FAILED,
    (State.COLLATING, "stored"): State.STORED,
    (State.COLLATING, "broke"): State.FAILED,
    (State.COLLATING, "abandon"): State.FAILED,
    (State.FAILED, "retry"): State.COLLATING,
}


def begun(state: State) -> m.Machine:
    """A machine that was begun and stands in this state."""
    record = target(files=list(FILES) if state is State.FAILED else [])
    machine = m.Machine(record)
    machine.handle(EVENTS["begin"])
    record.state = state
    return machine


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", list(State))
def test_every_state_with_every_event(state: State, event: str) -> None:
    machine = begun(state)
    before = repr(machine.target)
    actions = machine.handle(EVENTS[event])
    wanted = LEGAL.get((state, event))
    if wanted is None:
        assert (actions, machine.ignored, repr(machine.target)) == ([], 1, before)
    else:
        assert (machine.target.state, machine.ignored) == (wanted, 0)
    assert (m.Settle() in actions) == (machine.target.state.terminal and wanted is not None)


@pytest.mark.parametrize(
    ("event", "state"),
    [
        ("begin", State.REQUESTED),
        ("decline", State.REFUSED),
        ("stop", State.CANCELLED),
        ("abandon", State.FAILED),
        ("armed", None),
        ("recorded", None),
        ("ended", None),
        ("broke", None),
    ],
)
def test_before_a_source_was_chosen(event: str, state: State | None) -> None:
    machine = m.Machine(target())
    machine.handle(EVENTS[event])
    assert machine.target.state is (state or State.REQUESTED)
    assert machine.ignored == (state is None)


def test_a_recording_from_request_to_store() -> None:
    machine = m.Machine(target(), m.Graces(stopping_ns=1, ended_ns=2, storing_ns=3, overrun_ns=4))
    assert machine.handle(m.Begin("kineto", 100)) == [m.StartRecording(), m.StartTimer(m.Timer.RECORDING, 104)]
    for name in ("armed", "recording", "draining"):
        assert machine.handle(EVENTS[name]) == []
        assert machine.target.doing == name
    got = recording(start_ns=5, end_ns=9, not_honoured=["memory: no"], warnings=["w"])
    assert machine.handle(m.Recorded(got)) == [m.Store(got), m.StartTimer(m.Timer.STORING, 3)]
    stored = StoredTrace("t1", 5, gpu_events=2, start_ns=6, end_ns=8, warnings=["v"])
    assert machine.handle(m.Stored(stored)) == [m.Settle()]
    record = machine.target
    assert (record.state, record.reason, record.trace, record.events, record.gpu_events) == (
        State.STORED,
        Reason.NONE,
        "t1",
        5,
        2,
    )
    assert (record.start_ns, record.end_ns, record.warnings, record.files, record.doing) == (5, 9, ["w", "v"], [], "")


def test_what_programs_say_is_bounded_in_a_record() -> None:
    # 64 processes that said 2,700 sentences each: 240 kB a process, and 20,000 processes of a user are kept
    machine, many = m.Machine(target()), [f"of a program: {number:0100}" for number in range(2700)]
    machine.handle(m.Begin("sdk", 100))
    machine.handle(m.Recorded(recording(not_honoured=many, warnings=many, message="x" * 100_000)))
    machine.handle(m.Stored(StoredTrace("t1", 5, gpu_events=0, start_ns=6, end_ns=8, warnings=["v", *many])))
    record = machine.target
    for said in (record.not_honoured, record.warnings, [record.message, record.shortfall_message]):
        assert sum(map(len, said)) < 2 * SAID_CHARACTERS_MAX + 100
    assert record.not_honoured[0] == many[0]
    assert record.not_honoured[-1].endswith("sentences more")


def test_run_times_and_memory_are_kept_for_a_retry_and_not_beside_the_trace_that_has_them() -> None:
    machine = begun(State.RECORDING)
    times = RunTimes(lasted_ns=5, idle=3)
    memory = Resident([ResidentLook(0, 2, 1)])
    machine.handle(m.Recorded(recording(run_times=times, resident=memory)))
    assert (machine.target.run_times, machine.target.resident) == (times, memory)
    machine.handle(m.Stored(StoredTrace("t1", 5)))
    assert (machine.target.run_times, machine.target.resident) == (RunTimes(), Resident())


def test_a_second_begin_is_ignored() -> None:
    machine = begun(State.REQUESTED)
    assert machine.handle(EVENTS["begin"]) == []
    assert machine.ignored == 1


@pytest.mark.parametrize(
    ("got", "stored", "reason"),
    [
        ({"reason": Reason.TARGET_ENDED, "message": "died"}, {}, Reason.TARGET_ENDED),
        ({}, {"truncated": True}, Reason.TRUNCATED),
        ({"lost": [Loss("source", "full", 2)]}, {}, Reason.LOSSES),
        ({}, {"lost": [Loss("decode", "bad", 2)]}, Reason.LOSSES),
        ({}, {"gpu_events": 0, "gpu_launches": 3}, Reason.NO_GPU_RECORDS),
    ],
)
def test_what_makes_a_trace_partial(got: dict[str, Any], stored: dict[str, Any], reason: Reason) -> None:
    machine = begun(State.DRAINING)
    machine.handle(m.Recorded(recording(**got)))
    machine.handle(m.Stored(StoredTrace("t1", 5, **stored)))
    assert (machine.target.state, machine.target.reason) == (State.PARTIAL, reason)
    assert machine.target.message


class TestStop:
    def test_signals_and_bounds_a_source_that_can_stop(self) -> None:
        machine = begun(State.RECORDING)
        assert [type(a) for a in machine.handle(EVENTS["stop"])] == [m.SignalStop, m.StartTimer]
        assert machine.handle(EVENTS["stop"]) == []

    def test_of_a_source_that_cannot_says_so(self) -> None:
        machine = begun(State.RECORDING)
        machine.can_stop = False
        assert machine.handle(EVENTS["stop"]) == [m.SignalStop()]
        assert "runs to its end" in machine.target.doing
        for event in ("recorded", "stored"):
            machine.handle(EVENTS[event])
        assert (machine.target.state, machine.target.warnings) == (State.STORED, [])

    def test_without_data_is_cancelled(self) -> None:
        machine = begun(State.ARMED)
        machine.handle(EVENTS["stop"])
        machine.handle(EVENTS["empty"])
        assert (machine.target.state, machine.target.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)

    def test_without_data_says_why_there_is_none(self) -> None:
        machine = m.Machine(target(), open_ended=True)
        for event in ("begin", "stop"):
            machine.handle(EVENTS[event])
        machine.handle(m.Recorded(Recording(State.FAILED, Reason.NO_FILE, "nothing was recorded: no range ran")))
        assert (machine.target.state, machine.target.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)
        assert machine.target.message == "stopped by alice; nothing was recorded: no range ran"

    def test_with_data_is_stored_and_warned_of(self) -> None:
        machine = begun(State.RECORDING)
        for event in ("stop", "recorded", "stored"):
            machine.handle(EVENTS[event])
        assert machine.target.state is State.STORED
        assert machine.target.warnings == ["ended before its window: stopped by alice"]

    def test_is_how_an_open_ended_capture_ends(self) -> None:
        machine = m.Machine(target(), open_ended=True)
        for event in ("begin", "stop", "recorded", "stored"):
            machine.handle(EVENTS[event])
        assert (machine.target.state, machine.target.warnings) == (State.STORED, [])

    def test_the_source_may_cancel_itself(self) -> None:
        machine = begun(State.ARMED)
        machine.handle(EVENTS["stop"])
        machine.handle(m.Recorded(Recording(state=State.CANCELLED)))
        assert (machine.target.state, machine.target.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)
        assert machine.target.message == "stopped by alice"


class TestDeadlines:
    def test_the_recording_is_stopped_then_given_up(self) -> None:
        machine = begun(State.RECORDING)
        assert [type(a) for a in machine.handle(EVENTS["deadline"])] == [m.SignalStop, m.StartTimer]
        assert machine.handle(EVENTS["stopping"]) == [m.AbortRecording(), m.Settle()]
        assert (machine.target.state, machine.target.reason) == (State.FAILED, Reason.TIMEOUT)

    def test_data_at_the_deadline_is_partial(self) -> None:
        machine = begun(State.RECORDING)
        for event in ("deadline", "recorded", "stored"):
            machine.handle(EVENTS[event])
        assert (machine.target.state, machine.target.reason) == (State.PARTIAL, Reason.TIMEOUT)

    def test_an_ended_process_is_named(self) -> None:
        machine = begun(State.RECORDING)
        for event in ("ended", "gone", "stopping"):
            machine.handle(EVENTS[event])
        assert (machine.target.state, machine.target.reason) == (State.FAILED, Reason.TARGET_ENDED)

    def test_an_ended_process_without_data(self) -> None:
        machine = begun(State.RECORDING)
        for event in ("ended", "empty"):
            machine.handle(EVENTS[event])
        assert (machine.target.state, machine.target.reason) == (State.FAILED, Reason.TARGET_ENDED)

    @pytest.mark.parametrize("reason", [Reason.NONE, Reason.SOURCE_FAILED, Reason.NO_FILE, Reason.TARGET_SILENT])
    def test_an_end_explains_what_the_source_could_not(self, reason: Reason) -> None:
        machine = begun(State.RECORDING)
        machine.handle(EVENTS["ended"])
        machine.handle(m.Recorded(Recording(State.FAILED, reason, "no data")))
        assert (machine.target.state, machine.target.reason) == (State.FAILED, Reason.TARGET_ENDED)

    def test_an_end_explains_a_mistaken_refusal(self) -> None:
        machine = begun(State.ARMED)
        machine.handle(EVENTS["ended"])
        machine.handle(m.Recorded(Recording(State.REFUSED, Reason.NOT_PERMITTED, "no such process")))
        assert (machine.target.state, machine.target.reason) == (State.FAILED, Reason.TARGET_ENDED)

    def test_an_end_explains_a_short_file(self) -> None:
        machine = begun(State.RECORDING)
        machine.handle(EVENTS["ended"])
        machine.handle(m.Recorded(recording(reason=Reason.SOURCE_FAILED, message="py-spy stopped.")))
        machine.handle(EVENTS["stored"])
        assert (machine.target.state, machine.target.reason) == (State.PARTIAL, Reason.TARGET_ENDED)
        assert "py-spy stopped." in machine.target.message

    def test_a_better_reason_stands(self) -> None:
        machine = begun(State.RECORDING)
        machine.handle(EVENTS["ended"])
        machine.handle(m.Recorded(Recording(State.FAILED, Reason.FILE_REFUSED, "a symlink")))
        assert machine.target.reason is Reason.FILE_REFUSED


def test_a_stop_explains_that_there_is_nothing() -> None:
    machine = begun(State.RECORDING)
    machine.handle(EVENTS["stop"])
    machine.handle(m.Recorded(Recording(State.FAILED, Reason.SOURCE_FAILED, "no samples")))
    assert (machine.target.state, machine.target.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)


def test_a_source_says_why_it_ended() -> None:
    machine = begun(State.ARMED)
    machine.handle(m.Recorded(Recording(state=State.BUSY, reason=Reason.OTHER_PROFILER, message="Nsight")))
    assert (machine.target.state, machine.target.reason, machine.target.message) == (
        State.BUSY,
        Reason.OTHER_PROFILER,
        "Nsight",
    )


def test_retry_keeps_what_the_source_said() -> None:
    machine = begun(State.RECORDING)
    got = recording(start_ns=5, lost=[Loss("source", "full", 1)], reason=Reason.TARGET_ENDED, message="died")
    machine.handle(m.Recorded(got))
    machine.handle(m.Broke(Reason.WORKER_DIED, "killed"))
    again = m.Machine(machine.target)
    actions = again.handle(m.Retry())
    assert isinstance(actions[0], m.Store)
    again.handle(EVENTS["stored"])
    assert (again.target.state, again.target.reason, again.target.start_ns) == (
        State.PARTIAL,
        Reason.TARGET_ENDED,
        5,
    )
    assert again.target.lost == [Loss("source", "full", 1)]


def orphaned(state: State) -> m.Machine:
    """A machine of the next daemon."""
    machine = m.Machine(target(files=list(FILES), state=state))
    machine.handle(m.Orphaned())
    return machine


@pytest.mark.parametrize("state", UNDER_WAY)
def test_what_an_earlier_daemon_was_recording_has_no_end_before_it_is_known(state: State) -> None:
    machine = orphaned(state)
    assert (machine.target.state, machine.ignored) == (State.DRAINING, 0)
    for name in ("orphaned", "stop", "abandon", "retry"):
        assert machine.handle(EVENTS[name]) == []
    assert (machine.target.state, machine.ignored) == (State.DRAINING, 4)
    actions = machine.handle(m.TakenOver((Loss("target", "arena_full", 3),)))
    assert isinstance(actions[0], m.Store)
    assert machine.handle(EVENTS["stored"]) == [m.Settle()]
    assert (machine.target.state, machine.target.reason) == (State.PARTIAL, Reason.DAEMON_RESTARTED)
    assert machine.target.lost == [Loss("target", "arena_full", 3)]


def test_what_was_being_stored_is_stored_by_the_next_daemon() -> None:
    machine = m.Machine(target(files=list(FILES), state=State.COLLATING, shortfall=Reason.TRUNCATED))
    assert isinstance(machine.handle(m.Retry())[0], m.Store)
    machine.handle(EVENTS["stored"])
    assert (machine.target.state, machine.target.reason) == (State.PARTIAL, Reason.TRUNCATED)


@given(st.lists(st.sampled_from(sorted({*EVENTS} - {"orphaned"})), max_size=30))
def test_random_events_settle_exactly_once_per_try(names: list[str]) -> None:
    """Whatever comes in whatever order: one Settle when it becomes terminal, and Abandon always ends it."""
    machine = m.Machine(target())
    for name in [*names, "abandon"]:
        was = machine.target.state
        actions = machine.handle(EVENTS[name])
        settled = actions.count(m.Settle())
        assert settled == (machine.target.state.terminal and not was.terminal)
        if was.terminal and name != "retry":
            assert machine.target.state is was
        if not was.terminal and not machine.target.state.terminal:
            assert machine.target.state >= was
    assert machine.target.state.terminal


def test_a_source_may_need_longer_to_stop() -> None:
    for asked_ns, given_ns in ((0, 30 * m.SECOND_NS), (90 * m.SECOND_NS, 90 * m.SECOND_NS), (1, 30 * m.SECOND_NS)):
        machine = m.Machine(target(), m.Graces())
        machine.handle(m.Begin("sdk", 100, asked_ns))
        assert machine.handle(EVENTS["stop"]) == [m.SignalStop(), m.StartTimer(m.Timer.STOPPING, given_ns)]

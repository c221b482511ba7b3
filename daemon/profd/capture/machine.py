"""The state machine of one target: events in, actions out, no I/O and no clock.

    REQUESTED --Begin--> (source runs) --Report--> ARMED -> RECORDING -> DRAINING
        --Recorded with files--> COLLATING --Stored--> STORED | PARTIAL
    and from every live state to FAILED, CANCELLED, BUSY or REFUSED as the table below says.

Time comes in as `Expired(timer)` for timers the machine asked for. An event that
the table does not list for a state is ignored and counted: sources, workers and
users race, and the later of two truths about an ended target is no error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from profd.capture.outcome import StoredTrace, verdict
from profd.capture.records import TargetRecord
from profd.model.capture import Loss, Reason, Recording, State
from profd.model.resident import Resident
from profd.model.run_times import RunTimes
from profd.model.said import brief, few

_RETRY: Final = "`profctl retry`"
_RETRY_HELPS: Final = frozenset((Reason.WORKER_DIED, Reason.DISK_FULL, Reason.STORE_UNAVAILABLE))

SECOND_NS: Final = 1_000_000_000


class Timer(Enum):
    """A deadline that may expire."""

    RECORDING = "recording"  # the source's own deadline for the whole recording
    STOPPING = "stopping"  # after a stop was signalled: the source must return
    ENDED = "ended"  # after the process ended: the source must notice
    STORING = "storing"  # the worker must be done


@dataclass(frozen=True, slots=True)
class Begin:
    """A source was chosen; `deadline_ns` is the longest its whole recording may take, `stop_ns` ending it early."""

    source: str
    deadline_ns: int
    stop_ns: int = 0


@dataclass(frozen=True, slots=True)
class Decline:
    """It will not be tried: `state` is REFUSED, BUSY, or FAILED where the daemon could not begin."""

    state: State
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The source says where it stands (ARMED, RECORDING, DRAINING) and what it is doing."""

    state: State
    doing: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody wants the recording to end now: CANCELLED_BY_USER, CLIENT_GONE, DISK_FULL or TIMEOUT."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The kernel says the process is gone."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A timer that was asked for has run out."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class Recorded:
    """The source returned."""

    recording: Recording


@dataclass(frozen=True, slots=True)
class Broke:
    """The source, the journal or the store raised; `reason` says which of them."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The trace is in the store."""

    trace: StoredTrace


@dataclass(frozen=True, slots=True)
class Retry:
    """Decode what is still in the journal once more."""


@dataclass(frozen=True, slots=True)
class Orphaned:
    """An earlier daemon left it live, and its process may come back with what it has recorded."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The process's recording is in its files, less these."""

    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class Abandon:
    """The daemon goes away, or came back and found this target live."""

    reason: Reason
    message: str


Event = (
    Begin
    | Decline
    | Report
    | Stop
    | ProcessEnded
    | Expired
    | Recorded
    | Broke
    | Stored
    | Retry
    | Orphaned
    | TakenOver
    | Abandon
)


@dataclass(frozen=True, slots=True)
class StartRecording:
    """Run the source's `record` as a task."""


@dataclass(frozen=True, slots=True)
class SignalStop:
    """Set the session's stop event."""


@dataclass(frozen=True, slots=True)
class AbortRecording:
    """Cancel the source's task: it has had its chance."""


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Send `Expired(timer)` after that long, unless the target has ended by then."""

    timer: Timer
    after_ns: int


@dataclass(frozen=True, slots=True)
class Store:
    """Hand the recording to a worker and the store."""

    recording: Recording


@dataclass(frozen=True, slots=True)
class Settle:
    """The target is terminal: release the process, write the record, tell the watchers."""


Action = StartRecording | SignalStop | AbortRecording | StartTimer | Store | Settle


VAGUE: Final = frozenset((Reason.NONE, Reason.SOURCE_FAILED, Reason.NO_FILE, Reason.TARGET_SILENT))
"""Reasons that the end of the process, or a stop, explains better."""

MISTAKEN: Final = VAGUE | {Reason.NO_SOURCE, Reason.NOT_PERMITTED}
"""Reasons that a tool gives for a process that went away under its hands."""


@dataclass(frozen=True, slots=True)
class Graces:
    """How long others get to do what they must, ns. Generous: hosts under load are slow."""

    stopping_ns: int = 30 * SECOND_NS
    ended_ns: int = 15 * SECOND_NS
    storing_ns: int = 1200 * SECOND_NS
    overrun_ns: int = 5 * SECOND_NS  # beyond the plan's deadline: the source keeps it itself and knows more
    hearing_ns: int = 2 * SECOND_NS  # for word that the process has ended, after its source failed
    returning_ns: int = 20 * SECOND_NS  # after a restart: processes go on recording for 15 s without a daemon
    taking_over_ns: int = 200 * SECOND_NS  # from its return: a stop of 65 s and a drain of 120 s at most


class Machine:
    """One target's machine over its record, which it alone changes.

    `ignored` counts events that came too late or too early. `can_stop` is the
    source's: False means a stop is passed on but the window may run to its end,
    so no stopping timer is set and the recording deadline alone bounds it.
    """

    def __init__(self, target: TargetRecord, graces: Graces | None = None, *, open_ended: bool = False) -> None:
        self.target = target
        self.can_stop = True
        self.ignored = 0
        self._graces = graces or Graces()
        self._stopping_ns = self._graces.stopping_ns
        self._open_ended = open_ended
        self._begun = False
        self._stop: Stop | None = None
        self._ended = False
        self._orphaned = False
        self._recording: Recording | None = None

    @property
    def stopping(self) -> bool:
        """A stop was asked for."""
        return self._stop is not None

    def handle(self, event: Event) -> list[Action]:
        """Take one event; returns what is to be done now, in order."""
        handler = TABLE.get((self.target.state, type(event)))
        actions = handler(self, event) if handler else None
        if actions is None:
            self.ignored += 1
            return []
        return actions

    # Handlers return None for an event that means nothing here.

    def _begin(self, event: Begin) -> list[Action] | None:
        if self._begun:
            return None
        self._begun = True
        self._stopping_ns = max(self._stopping_ns, event.stop_ns)
        self.target.source = event.source
        return [StartRecording(), StartTimer(Timer.RECORDING, event.deadline_ns + self._graces.overrun_ns)]

    def _decline(self, event: Decline) -> list[Action] | None:
        return None if self._begun else self._end(event.state, event.reason, event.message)

    def _report(self, event: Report) -> list[Action] | None:
        if not self._begun or event.state not in (State.ARMED, State.RECORDING, State.DRAINING):
            return None
        # A source that asks its target again says so in words; the state never goes back.
        self.target.state = max(self.target.state, event.state)
        self.target.doing = event.doing
        return []

    def _request_stop(self, event: Stop) -> list[Action] | None:
        if self._stop is not None or self._orphaned:  # which ends as it is
            return None
        self._stop = event
        if not self._begun:
            return self._end(State.CANCELLED, event.reason, event.message)
        if self.can_stop:
            return [SignalStop(), StartTimer(Timer.STOPPING, self._stopping_ns)]
        self.target.doing = f"stopping; once accepted, a window of {self.target.source} runs to its end"
        return [SignalStop()]

    def _process_ended(self, _event: ProcessEnded) -> list[Action] | None:
        if not self._begun or self._ended:
            return None
        self._ended = True
        self.target.doing = "the process has ended; looking for what it left"
        return [StartTimer(Timer.ENDED, self._graces.ended_ns)]

    def _expired(self, event: Expired) -> list[Action] | None:
        if event.timer is Timer.STORING:
            return None
        if event.timer is Timer.STOPPING:
            return [AbortRecording(), *self._give_up()]
        if event.timer is Timer.RECORDING and self._stop is None:
            self._stop = Stop(Reason.TIMEOUT, "it took longer than it may")
        return [SignalStop(), StartTimer(Timer.STOPPING, self._stopping_ns)]

    def _give_up(self) -> list[Action]:
        if self._ended:
            return self._end(State.FAILED, Reason.TARGET_ENDED, "the process ended during the capture")
        message = f"{self.target.source} did not return in time ({self.target.doing or 'no word from it'})"
        return self._end(State.FAILED, Reason.TIMEOUT, message)

    def _recorded(self, event: Recorded) -> list[Action] | None:
        if not self._begun:
            return None
        self._recording = event.recording
        _copy(event.recording, self.target)
        if event.recording.state is State.DRAINING and event.recording.files:
            self._explain(event.recording)
            self.target.shortfall = event.recording.reason
            self.target.shortfall_message = brief(event.recording.message)
            return self._collate(event.recording)
        return self._without_files(event.recording)

    def _explain(self, recording: Recording) -> None:
        """Say why a recording with files is not what was asked for, where the source could not know."""
        if self._ended and recording.reason in VAGUE - {Reason.NONE}:
            recording.reason = Reason.TARGET_ENDED
            recording.message = f"the process ended during the capture; what was recorded is kept. {recording.message}"
        stop = self._stop
        if stop is None:
            return
        if stop.reason is Reason.TIMEOUT and recording.reason is Reason.NONE:
            recording.reason = Reason.TIMEOUT
            recording.message = "the recording was cut off at its deadline"
        elif stop.reason is Reason.DISK_FULL and self.can_stop:
            if recording.reason is Reason.NONE:
                recording.reason, recording.message = stop.reason, f"ended early: {stop.message}; what there is is kept"
        elif self.can_stop and not (self._open_ended and stop.reason is Reason.CANCELLED_BY_USER):
            # A trace that was cut short is whole, but its reader must know.
            self.target.warnings.append(f"ended before its window: {stop.message}")

    def _without_files(self, recording: Recording) -> list[Action]:
        declined = recording.state.terminal and recording.state not in (State.STORED, State.PARTIAL)
        vague = recording.reason in VAGUE and recording.state not in (State.BUSY, State.REFUSED)
        stop = self._stop
        if stop is not None and stop.reason is not Reason.TIMEOUT:
            if vague or recording.state is State.CANCELLED:
                # Both halves: that it was stopped, and why nothing came of what was recorded until then.
                message = "; ".join(filter(None, (stop.message, recording.message)))
                return self._end(State.CANCELLED, stop.reason, message)
        elif self._ended and recording.reason in MISTAKEN and recording.state is not State.BUSY:
            return self._give_up()
        if declined:
            return self._end(recording.state, recording.reason, recording.message)
        message = recording.message or f"{self.target.source} finished and left no data"
        return self._end(State.FAILED, recording.reason or Reason.NO_FILE, message)

    def _collate(self, recording: Recording) -> list[Action]:
        self.target.state = State.COLLATING
        self.target.doing = "decoding and storing"
        return [Store(recording), StartTimer(Timer.STORING, self._graces.storing_ns)]

    def _broke(self, event: Broke) -> list[Action] | None:
        message = event.message
        if self.target.files and event.reason in _RETRY_HELPS and _RETRY not in message:
            message = f"{message}; its raw data is kept: {_RETRY}"
        return self._end(State.FAILED, event.reason, message)

    def _broke_recording(self, event: Broke) -> list[Action] | None:
        return self._broke(event) if self._begun else None

    def _stored(self, event: Stored) -> list[Action] | None:
        recording = self._recording or Recording()
        target, trace = self.target, event.trace
        target.trace = trace.trace
        target.events = trace.events
        target.gpu_events = trace.gpu_events
        target.start_ns = trace.start_ns if recording.start_ns is None else recording.start_ns
        target.end_ns = trace.end_ns if recording.end_ns is None else recording.end_ns
        target.lost = [*recording.lost, *trace.lost]
        target.warnings = few([*target.warnings, *trace.warnings])
        target.waterfall = [*target.waterfall, *trace.waterfall]
        # The trace has them; records are kept by the thousand.
        target.files, target.run_times, target.resident = [], RunTimes(), Resident()
        return self._end(*verdict(recording, trace, target))

    def _late_store(self, event: Expired) -> list[Action] | None:
        if event.timer is not Timer.STORING:
            return None
        return self._end(State.FAILED, Reason.TIMEOUT, "storing the trace took too long; try `profctl retry`")

    def _retry(self, _event: Retry) -> list[Action] | None:
        if not self.target.files:
            return None
        target = self.target
        self._begun = True
        self._recording = Recording(
            files=list(target.files),
            start_ns=target.start_ns,
            end_ns=target.end_ns,
            lost=list(target.lost),
            reason=target.shortfall,
            message=target.shortfall_message,
        )
        target.reason, target.message = Reason.NONE, ""
        return self._collate(self._recording)

    def _go_on_storing(self, event: Retry) -> list[Action] | None:
        """An earlier daemon was at it."""
        return None if self._begun else self._retry(event)

    def _orphan(self, _event: Orphaned) -> list[Action] | None:
        if self._begun:
            return None
        self._begun = self._orphaned = True
        self.target.state = State.DRAINING
        self.target.doing = "profd was restarted; waiting for the process to come back"
        return []

    def _taken_over(self, event: TakenOver) -> list[Action] | None:
        if not self._orphaned:
            return None
        self.target.cut_off(event.losses)
        return self._retry(Retry())

    def _abandon(self, event: Abandon) -> list[Action] | None:
        if self._orphaned and self.target.state is State.DRAINING:
            return None  # no end of it: the next daemon goes on waiting
        actions: list[Action] = [AbortRecording()] if self._begun else []
        return [*actions, *self._end(State.FAILED, event.reason, event.message)]

    def _end(self, state: State, reason: Reason, message: str) -> list[Action]:
        self.target.state = state
        self.target.reason = reason
        self.target.message = brief(message)
        self.target.doing = ""
        return [Settle()]


def _copy(recording: Recording, target: TargetRecord) -> None:
    """Copy the source's word about its recording into the target's record."""
    target.files = list(recording.files)
    target.start_ns = recording.start_ns
    target.end_ns = recording.end_ns
    target.lost = list(recording.lost)
    # The estimate named some before; the source knows best, the rest stays.
    target.not_honoured = few([*target.not_honoured, *recording.not_honoured])
    target.warnings = few([*target.warnings, *recording.warnings])
    target.waterfall = list(recording.waterfall)
    target.cost = recording.cost
    target.steps = recording.steps
    target.versions = dict(recording.versions)
    target.gpu = dict(recording.gpu)
    target.run_times = recording.run_times
    target.load = recording.load
    target.resident = recording.resident


Handler = Callable[[Machine, object], "list[Action] | None"]

# Every legal pair; what is not here is ignored and counted.
TABLE: Final[dict[tuple[State, type], Handler]] = {}


def _allow(states: tuple[State, ...], event: type, handler: Callable[..., list[Action] | None]) -> None:
    for state in states:
        TABLE[state, event] = handler


WAITING: Final = (State.REQUESTED,)
UNDER_WAY: Final = (State.REQUESTED, State.ARMED, State.RECORDING, State.DRAINING)
LIVE: Final = (*UNDER_WAY, State.COLLATING)

_allow(WAITING, Begin, Machine._begin)
_allow(WAITING, Decline, Machine._decline)
_allow(UNDER_WAY, Report, Machine._report)
_allow(UNDER_WAY, Stop, Machine._request_stop)
_allow(UNDER_WAY, ProcessEnded, Machine._process_ended)
_allow(UNDER_WAY, Expired, Machine._expired)
_allow(UNDER_WAY, Recorded, Machine._recorded)
_allow(UNDER_WAY, Broke, Machine._broke_recording)
_allow((State.COLLATING,), Expired, Machine._late_store)
_allow((State.COLLATING,), Stored, Machine._stored)
_allow((State.COLLATING,), Broke, Machine._broke)
_allow((State.FAILED,), Retry, Machine._retry)
_allow(UNDER_WAY, Orphaned, Machine._orphan)
_allow((State.COLLATING,), Retry, Machine._go_on_storing)
_allow((State.DRAINING,), TakenOver, Machine._taken_over)
_allow(LIVE, Abandon, Machine._abandon)

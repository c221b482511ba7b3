"""Captures and their targets as durable records: what is kept on disk and shown to callers.

A record is the whole truth of a capture; everything else the manager holds
(tasks, timers, locks) dies with the process. `to_json` and `from_json` are the
only way in and out, unknown keys of a newer version are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from profd.errors import BadInput
from profd.limits import CAPTURE_COMMAND_CHARACTERS_MAX, CAPTURE_JOB_CHARACTERS_MAX
from profd.model.capture import Cost, Fleet, Loss, Options, Phase, RawFile, Reason, RecordedSteps, State
from profd.model.decodable import decodable
from profd.model.load import Load
from profd.model.resident import Resident
from profd.model.run_times import RunTimes
from profd.model.said import brief, few
from profd.model.traits import Traits, of_older
from profd.targets.process import Process, ProcessId

# Worst last. A capture that ended badly for one target says so, whatever became of the others.
GRAVITY: Final[tuple[State, ...]] = (
    State.STORED,
    State.PARTIAL,
    State.CANCELLED,
    State.BUSY,
    State.REFUSED,
    State.FAILED,
)

_CUT_OFF: Final = "the recording was cut off before its end; what had arrived is kept"


@dataclass(slots=True)
class TargetRecord:
    """One process of one capture. `files` are raw data still in the journal, for a retry."""

    host: str
    pid: int
    start_ticks: int
    uid: int
    user: str
    command: str
    rank: int | None = None
    gpus: tuple[int, ...] = ()
    job: str = ""
    cuda: bool = False
    source: str = ""
    choice: str = ""
    state: State = State.REQUESTED
    reason: Reason = Reason.NONE
    message: str = ""
    doing: str = ""
    trace: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    events: int | None = None
    gpu_events: int | None = None
    lost: list[Loss] = field(default_factory=list)
    not_honoured: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    risks: list[str] = field(default_factory=list)  # what might have happened, from the estimate
    waterfall: list[Phase] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    steps: RecordedSteps | None = None
    versions: dict[str, str] = field(default_factory=dict)
    gpu: dict[str, int | str] = field(default_factory=dict)
    run_times: RunTimes = field(default_factory=RunTimes)
    load: Load = field(default_factory=Load)
    resident: Resident = field(default_factory=Resident)
    files: list[RawFile] = field(default_factory=list)
    shortfall: Reason = Reason.NONE  # what the source said is missing: a retry must not forget it
    shortfall_message: str = ""
    traits: Traits | None = None  # of what its source records; None: of a record written before this was

    @property
    def known_traits(self) -> Traits:
        """The traits of its trace, whichever build wrote the record."""
        return self.traits or of_older(self.source)

    @property
    def process(self) -> ProcessId:
        """Which process it is."""
        return ProcessId(self.pid, self.start_ticks)

    @property
    def told(self) -> list[str]:
        """Warnings for a caller: risks too, unless all went well and they are of no more interest."""
        return list(self.warnings) if self.state is State.STORED else [*self.risks, *self.warnings]

    def shorten(self) -> None:
        """Cut what an earlier build has kept at any length."""
        self.message, self.shortfall_message = brief(self.message), brief(self.shortfall_message)
        self.not_honoured, self.warnings = few(self.not_honoured), few(self.warnings)

    def keep(self, files: list[RawFile]) -> None:
        """Files that are still being written: what a retry finds if their source never returns."""
        self.files = list(files)
        self.shortfall = Reason.TRUNCATED if files else Reason.NONE
        self.shortfall_message = _CUT_OFF if files else ""

    def cut_off(self, losses: Sequence[Loss]) -> None:
        """A restart of the daemon ended the recording; its files are as whole as they will be, less these."""
        self.lost = [*self.lost, *losses]
        self.shortfall = Reason.DAEMON_RESTARTED
        self.shortfall_message = "profd was restarted during the capture, which ended there; what was recorded is kept"

    @classmethod
    def of(cls, process: Process, host: str) -> TargetRecord:
        """A fresh record of a process on this host."""
        return cls(
            host=host,
            pid=process.id.pid,
            start_ticks=process.id.start_ticks,
            uid=process.uid,
            user=process.user,
            command=process.command[:CAPTURE_COMMAND_CHARACTERS_MAX],
            rank=process.rank,
            gpus=process.gpus,
            job=process.job[:CAPTURE_JOB_CHARACTERS_MAX],
            cuda=process.cuda,
        )


@decodable
@dataclass(slots=True)
class CaptureRecord:
    """One request and what became of it; `finished_ns` is None while any target is live."""

    id: str
    request_id: str
    owner: str
    owner_uid: int
    created_ns: int
    options: Options = field(default_factory=Options)
    open_ended: bool = False
    finished_ns: int | None = None
    fleet: Fleet | None = None
    reason: str = ""  # of the program that asked for it itself
    targets: list[TargetRecord] = field(default_factory=list)

    @property
    def state(self) -> State:
        """The gravest of its targets; while one is live, where the slowest live one stands."""
        return gravest([target.state for target in self.targets])

    @property
    def terminal(self) -> bool:
        """No target changes any more."""
        return all(target.state.terminal for target in self.targets)

    def to_json(self) -> dict[str, Any]:
        """JSON values only; the inverse of `from_json`."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CaptureRecord:
        """A record as it was written. BadInput if the file was damaged."""
        try:
            record = msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise BadInput(f"a capture record is damaged: {error}") from error
        for target in record.targets:
            target.shorten()
        return record


def gravest(states: list[State]) -> State:
    """One state for many: any live one wins (the least advanced), else the worst ending. FAILED if none."""
    live = [state for state in states if not state.terminal]
    if live:
        return min(live)
    return max(states, key=GRAVITY.index, default=State.FAILED)

"""The words of a capture as plain values: states, reasons, options, what came of it.

Numbers equal those of `profproto/v1/capture.proto` (a test compares them), so
translating at the RPC edge is a cast. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Final

from profd.model.load import Load
from profd.model.resident import Resident
from profd.model.run_times import RunTimes


class State(IntEnum):
    """Where a target stands; see `docs/architecture.md` for who moves it."""

    REQUESTED = 1
    ARMED = 2
    RECORDING = 3
    DRAINING = 4
    COLLATING = 5
    STORED = 6
    PARTIAL = 7
    FAILED = 8
    BUSY = 9
    REFUSED = 10
    CANCELLED = 11

    @property
    def terminal(self) -> bool:
        """Nothing changes after it."""
        return self >= State.STORED

    @property
    def label(self) -> str:
        """The word in JSON and on screen."""
        return self.name.lower()


class Reason(IntEnum):
    """Why a target ended as it did."""

    NONE = 0
    NO_SOURCE = 1
    LAUNCHER = 2
    NOT_PERMITTED = 3
    CAPTURE_RUNNING = 4
    OTHER_PROFILER = 5
    TARGET_ENDED = 6
    TARGET_SILENT = 7
    NO_FILE = 8
    FILE_REFUSED = 9
    UNREADABLE = 10
    TRUNCATED = 11
    NO_GPU_RECORDS = 12
    DISK_FULL = 13
    STORE_UNAVAILABLE = 14
    DISABLED = 15
    OVER_LIMIT = 16
    NOT_HONOURED = 17
    WORKER_DIED = 18
    DAEMON_RESTARTED = 19
    CANCELLED_BY_USER = 20
    CLIENT_GONE = 21
    TARGET_ENDING = 22
    TIMEOUT = 23
    SOURCE_FAILED = 24
    LOSSES = 25
    STEP_MISSED = 26

    @property
    def label(self) -> str:
        """The word in JSON: `no_gpu_records`; empty for NONE."""
        return "" if self is Reason.NONE else self.name.lower()


@dataclass(frozen=True)
class HostClock:
    """The clock of a host as the client of a fleet saw it, in ns: its word, which nothing here relies on."""

    ahead_ns: int  # of most hosts
    within_ns: int  # what that may be wrong by
    error_ns: int | None = None  # that the host's kernel allows for; None: it does not say
    synchronised: bool | None = None  # whether somebody keeps it; None: not known


@dataclass(frozen=True)
class Fleet:
    """The capture of many hosts that one of a host belongs to."""

    id: str
    host: str  # as its client named it
    hosts: int
    found: str  # how the client found them
    clock: HostClock | None = None


@dataclass(frozen=True)
class HandlingOptions:
    """What the daemon itself does about a request: no source has an answer to these."""

    source: str = ""
    strict: bool = False
    force: bool = False
    no_gpu_metrics: bool = False  # leave samples of the GPUs out


@dataclass(frozen=True)
class CommonOptions:
    """The window, and what can be recorded of any program."""

    duration_ns: int = 0
    iterations: int = 0
    start_at_ns: int | None = None
    begin_step: int | None = None  # the first of the iterations, as the program numbers its steps
    at_least_ns: int = 0  # that the window lasts, however short the iterations are
    stacks: bool = False
    c_calls: bool = False
    max_overhead: float | None = None  # share of the step time; None: no guard


@dataclass(frozen=True)
class TorchOptions:
    """Of PyTorch's operators."""

    torch: str = ""  # who records them: auto (or empty), observer, profiler
    shapes: bool = False
    memory: bool = False
    modules: bool = False
    flops: bool = False
    gpu_fallback: bool = False  # where there is no CUPTI, device times of operators by CUDA events


@dataclass(frozen=True)
class SamplingOptions:
    """Of samples, alone or beside other events."""

    sample_hz: float | None = None
    native: bool = False


@dataclass(frozen=True)
class ServerOptions:
    """Of the profiler server within JAX and TensorFlow processes."""

    port: int = 0  # 0: whichever answers
    collect_timeout_ns: int = 0  # for handing over a window; 0: by its length
    last_ns: int = 0  # record on and on, and keep only what came last; 0: all of it


@dataclass(frozen=True)
class Options(ServerOptions, SamplingOptions, TorchOptions, CommonOptions, HandlingOptions):
    """What a request asks. Zero, empty and None mean not given.

    Groups are for whoever answers (`sources/declaration.py`); in hand, on the wire and in records options are flat.
    """

    @property
    def asked(self) -> frozenset[str]:
        """The names of those that are not as they are by default."""
        other = frozenset(name for name, default in _DEFAULTS if getattr(self, name) != default)
        return other - {"torch"} if self.torch == "auto" else other


_DEFAULTS: Final = tuple((option.name, option.default) for option in fields(Options))
_WORDS: Final = {
    "duration_ns": "duration",
    "start_at_ns": "start_in",
    "begin_step": "at_step",
    "at_least_ns": "at_least",
    "sample_hz": "samples",
    "collect_timeout_ns": "collect_timeout",
    "last_ns": "last",
}


def option_word(name: str) -> str:
    """What people call an option: the word that a sentence about it begins with."""
    return _WORDS.get(name, name)


STAGES_BEFORE: Final = frozenset(("target", "streamer", "ingest", "source"))
"""Stages of losses that a recording brings with it, before anything is decoded."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Events that existed and are not in the trace."""

    stage: str  # one of STAGES_BEFORE, or decode, collate, store
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of a capture's waterfall."""

    name: str  # "poll wait", "lead", "window", "writing", "pick-up", "decode", "store"
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What the capture cost its target and how that is known."""

    how: str = "unknown"  # measured, estimated, unknown
    step_ratio: float | None = None
    seconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProgramSteps:
    """How far a program is, as it numbers its steps itself."""

    begun: int  # the number that the next one gets
    running_ns: int  # since the last one began
    step_ns: int | None  # the median of the last; None: not known


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """Whole steps that were recorded."""

    count: int
    step_ns: int = 0  # their median; 0: not known
    first: int | None = None  # the program's number of the first; None: it numbers none


@dataclass(frozen=True, slots=True)
class RawFile:
    """A whole file of raw data in the journal, to be decoded by a worker."""

    path: str  # on the daemon's side, owned by the daemon
    format: str  # one of those that decode/open.py knows


@dataclass(slots=True)
class Recording:
    """What a source hands over when its window is over.

    `state` is DRAINING when the files are to be decoded (also when some of it
    is missing: `shortfall` then says what, and the target ends PARTIAL), or a
    terminal state without files.
    """

    state: State = State.DRAINING
    reason: Reason = Reason.NONE
    message: str = ""
    files: list[RawFile] = field(default_factory=list)
    start_ns: int | None = None
    end_ns: int | None = None
    lost: list[Loss] = field(default_factory=list)
    not_honoured: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    waterfall: list[Phase] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    steps: RecordedSteps | None = None
    versions: dict[str, str] = field(default_factory=dict)
    gpu: dict[str, int | str] = field(default_factory=dict)  # what recorded CUDA says of itself (docs/gpu.md)
    run_times: RunTimes = field(default_factory=RunTimes)
    thread_names: dict[str, str] = field(default_factory=dict)  # by id, as the process says that Python has them
    load: Load = field(default_factory=Load)
    resident: Resident = field(default_factory=Resident)

"""A source, as the rest of the daemon sees it.

A source declares what it is (`declaration`), says what it could do for a process
(`offer`: cheap, synchronous, touches nothing), what a request would mean (`plan`: the same), and records
(`record`). It never decodes: it leaves whole files in the session's directory
and says what they are. It raises nothing for what a target does; that is a
Recording with a terminal state, a reason and a sentence.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from profd.disk.space import Claim, alone
from profd.gpu.leases import Held
from profd.limits import PICKUP_BYTES_MAX
from profd.model.capture import Options, Phase, ProgramSteps, RawFile, Reason, Recording, State
from profd.sources.declaration import Declaration
from profd.targets.process import Process


@dataclass(frozen=True, slots=True)
class Offer:
    """Whether a source can serve a process now. `reason` and `fix` are sentences, empty when it can."""

    can: bool
    reason: str = ""
    fix: str = ""
    why_code: Reason = Reason.NO_SOURCE  # used when it cannot
    busy: bool = False  # it could, were it not held by somebody (named in reason)
    concerns: bool = True  # False: it is for processes of another kind, which `profctl ps` need not tell this one
    after: tuple[str, ...] = ()  # sources that see more of this process: they come first where they can

    @classmethod
    def recording(cls, capture: str, pid: int) -> Offer:
        """The answer of a source about a process that it records already."""
        return cls(
            False,
            f"capture {capture} is recording pid {pid}",
            f"wait for it: profctl wait {capture}",
            Reason.CAPTURE_RUNNING,
            busy=True,
        )

    @classmethod
    def held(cls, why: Held) -> Offer:
        """The answer of a source about a process whose CUPTI has a holder (profd.gpu.leases)."""
        code = Reason.CAPTURE_RUNNING if why.holder.capture else Reason.OTHER_PROFILER
        return cls(False, str(why), why.fix, code, busy=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of serving a request. None: cannot be known beforehand."""

    serves: bool  # False: the whole request is beyond this source (`refusal` says why)
    refusal: str = ""
    refusal_code: Reason = Reason.NO_SOURCE
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Of the options that are declared `ByProcess`, by name: why this one would not be served, asked for or not."""
    latency_ns: int | None = None  # until the window opens
    events: int | None = None
    memory_bytes: int | None = None  # in the target
    trace_bytes: int | None = None  # written by the target
    cost_ns: int | None = None  # spent recording, by the target's threads together
    risks: tuple[str, ...] = ()
    deadline_ns: int = 0  # longest the whole recording may take
    stop_ns: int = 0  # longest it may take to end when it is stopped; 0: what every source is given


@dataclass(slots=True)
class Session:
    """One target of one capture, as its source sees it."""

    capture: str  # capture id
    directory: Path  # journal directory of this target; private to the daemon
    stop: asyncio.Event  # set when the user stops the capture, or the deadline passes
    report: Callable[[State, str], None]  # state (ARMED, RECORDING, DRAINING) and what it is doing now
    phases: list[Phase] = field(default_factory=list)
    keep: Callable[[list[RawFile]], None] = lambda files: None
    """Files that are being written and are of use whatever happens to the daemon: `profctl retry` finds them."""
    claim: Claim = field(default_factory=alone)  # of room on the journal's disk, for files that are taken over
    file_bytes_max: int = PICKUP_BYTES_MAX  # of data in one that the target wrote
    together: int = 1  # processes in the capture
    cores_max: float | None = None  # of the host, that a helper beside the process may take over its window
    made: Awaitable[object] | None = None
    """Of a `self_disarming` source: to be awaited before the directory is used. Raises OSError and ProfdError."""


class Source(ABC):
    """One way of getting events out of targets."""

    declaration: ClassVar[Declaration]

    @property
    def name(self) -> str:
        """The source's word, in requests and answers."""
        return self.declaration.name

    async def open(self) -> None:
        """Take what the source needs (sockets, threads). Raises ProfdError with the reason if it cannot."""
        return

    async def steps(self, process: Process) -> ProgramSteps | None:
        """How far the process is, by its own count; None where a recording cannot begin at a step of that."""
        return None

    async def close(self) -> None:
        """Let go of everything. Captures have ended before."""
        return

    async def prepare(self, processes: Sequence[Process]) -> None:  # noqa: B027 - most know enough without
        """Find out what `offer` needs to know of processes that the caller may profile.

        Awaited before offers are asked for; bounded to some seconds, and never disturbs a process beyond
        one harmless question.
        """

    async def back(self, processes: Sequence[Process]) -> bool:
        """Wait for those that come back by themselves, some seconds at most. True: what is known of them may be old."""
        return False

    @abstractmethod
    def offer(self, process: Process) -> Offer:
        """Can this process be traced now? Cheap, synchronous, touches nothing."""

    @abstractmethod
    def plan(self, process: Process, options: Options) -> Plan:
        """What would this request mean for this process? Cheap, synchronous, touches nothing."""

    @abstractmethod
    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        """Record until the window is over, `session.stop` is set or the target ends; always returns."""

    def status(self) -> tuple[bool, str, int]:
        """(available, one line of detail, processes it can serve now) for `doctor`."""
        return True, "", 0

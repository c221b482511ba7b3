"""The course of a capture of many hosts: events in, instructions out. Pure: no I/O, no clock, no gRPC.

    finding ─Found─► preparing ─Prepared─► ready ─(all have answered)─► beginning ─Began─► recording ─Changed─► over
      before Began: ─Nothing─► nothing, ─Out─► out          then: ─Broke─► Resume, Began again; at last lost
                                                                  ─Overdue─► lost
    asked (`resumed`) ─Began─► recording, over

Nothing begins before each host has answered or is out. The hosts that are out are known then, and named. A capture
that has begun is the daemons': the client may go, and take it up again (`resumed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

RESUMES_MAX: Final = 2  # how often a broken connection is made again


class Stand(StrEnum):
    """The stages of a host."""

    FINDING = "finding"
    PREPARING = "preparing"
    READY = "ready"
    BEGINNING = "beginning"
    ASKED = "asked"  # it has begun earlier, and has not said yet how it stands
    RECORDING = "recording"  # until all of its targets have ended
    OVER = "over"
    NOTHING = "nothing"  # there is none of what was asked for, which need not be on each host
    OUT = "out"
    LOST = "lost"  # it had begun, and nobody knows what became of it


_WAITED_FOR: Final = frozenset((Stand.FINDING, Stand.PREPARING))
_BEGUN: Final = frozenset((Stand.BEGINNING, Stand.ASKED, Stand.RECORDING))
ENDED: Final = frozenset((Stand.OVER, Stand.NOTHING, Stand.OUT, Stand.LOST))


# --- events ---
@dataclass(frozen=True, slots=True)
class Found:
    """The host's relay and daemon answer."""

    host: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """Its daemon has said how many processes it would record; `unable`: why not the others, one sentence each.

    `ranks`: of those that it would; `unable_ranks`: of the others. `busy`: captures hold some of these.
    """

    host: str
    able: int
    unable: Sequence[str] = ()
    ranks: Sequence[int] = ()
    unable_ranks: Sequence[int] = ()
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Nothing:
    """The host has none of the processes that were asked for."""

    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Began:
    """Its daemon has the capture."""

    host: str
    capture: Any
    live: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """The capture there, as it is now."""

    host: str
    capture: Any
    live: bool


@dataclass(frozen=True, slots=True)
class Out:
    """The host cannot take part; `kind` is an error's (`profclient.errors`)."""

    host: str
    why: str
    kind: str


@dataclass(frozen=True, slots=True)
class Broke:
    """The connection to it has ended."""

    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """The capture there should be over by now, and the host does not say so."""

    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The user wants it to end, on every host."""


Event = Found | Prepared | Nothing | Began | Changed | Out | Broke | Overdue | Stop


# --- instructions ---
@dataclass(frozen=True, slots=True)
class Find:
    """Reach the host."""

    host: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask what would be recorded."""

    host: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the capture on these, at one moment."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Reach it again: `began` or not, the daemon knows the fleet's id. Answered by Began."""

    host: str
    began: bool


@dataclass(frozen=True, slots=True)
class Watch:
    """Follow the capture until it is over."""

    host: str


@dataclass(frozen=True, slots=True)
class End:
    """Stop the capture there."""

    host: str


Instruction = Find | Prepare | Begin | Resume | Watch | End


@dataclass(slots=True)
class HostState:
    """One host: where it stands, the sentence that says why, its capture."""

    stand: Stand = Stand.FINDING
    why: str = ""
    kind: str = ""
    able: int = 0
    unable: list[str] = field(default_factory=list)
    ranks: Sequence[int] = ()
    unable_ranks: Sequence[int] = ()
    chosen: Sequence[int] = ()  # of the ranks, where not all are recorded
    capture: Any = None
    resumes: int = 0


Choose = Callable[[Mapping[str, Sequence[int]]], Mapping[str, Sequence[int]] | None]


class Fleet:
    """All hosts of one capture. `handle` takes an event and returns what is to be done about it."""

    def __init__(self, hosts: Iterable[str], choose: Choose = lambda ranks: None) -> None:
        """`choose`: some of the hosts' ranks, once all are known; None for all."""
        self.hosts = {host: HostState() for host in hosts}
        self._choose = choose
        self.stopping = False
        self._begun = False

    @classmethod
    def resumed(cls, hosts: Iterable[str]) -> Fleet:
        """One that began earlier."""
        fleet = cls(hosts)
        fleet._begun = True
        for state in fleet.hosts.values():
            state.stand = Stand.ASKED
        return fleet

    def begin(self) -> list[Instruction]:
        """The first instructions."""
        if self._begun:
            return [Resume(host, began=True) for host in self.hosts]
        return [Find(host) for host in self.hosts]

    @property
    def over(self) -> bool:
        """Nothing changes any more."""
        return all(state.stand in ENDED for state in self.hosts.values())

    @property
    def counts(self) -> Counter[Stand]:
        """Hosts by where they stand."""
        return Counter(state.stand for state in self.hosts.values())

    def handle(self, event: Event) -> list[Instruction]:
        """Events that come too late mean nothing: hosts, users and connections race."""
        if isinstance(event, Stop):
            return self._stop()
        state = self.hosts[event.host]
        if state.stand in ENDED:
            return []
        match event:
            case Found() if state.stand is Stand.FINDING:
                state.stand = Stand.PREPARING
                return [Prepare(event.host)]
            case Prepared() if state.stand is Stand.PREPARING:
                return self._prepared(state, event)
            case Nothing() if state.stand in _WAITED_FOR or state.stand is Stand.BEGINNING:
                state.stand, state.why, state.kind = Stand.NOTHING, event.why, "not_found"
                return self._begin_when_all_have_answered()
            case Began() if state.stand in _BEGUN:
                return self._began(state, event)
            case Changed() if state.stand is Stand.RECORDING:
                state.capture = event.capture
                state.stand = Stand.RECORDING if event.live else Stand.OVER
            case Out():
                state.stand, state.why, state.kind = Stand.OUT, event.why, event.kind
                return self._begin_when_all_have_answered()
            case Broke():
                return self._broke(state, event)
            case Overdue() if state.stand is Stand.RECORDING:
                state.stand, state.why, state.kind = Stand.LOST, event.why, "timeout"
        return []

    def _prepared(self, state: HostState, event: Prepared) -> list[Instruction]:
        state.able, state.unable, state.ranks = event.able, list(event.unable), event.ranks
        state.unable_ranks = event.unable_ranks
        state.stand = Stand.READY
        if not event.able:
            state.stand, state.kind = Stand.OUT, "busy" if event.busy else "failure"
            state.why = event.unable[0] if event.unable else "none of its processes can be recorded"
        return self._begin_when_all_have_answered()

    def _begin_when_all_have_answered(self) -> list[Instruction]:
        if self._begun or any(state.stand in _WAITED_FOR for state in self.hosts.values()):
            return []
        self._begun = True
        self._leave_out_what_is_not_chosen()
        ready = tuple(host for host, state in self.hosts.items() if state.stand is Stand.READY)
        for host in ready:
            self.hosts[host].stand = Stand.BEGINNING
        return [Begin(ready)] if ready else []

    def _leave_out_what_is_not_chosen(self) -> None:
        ready = {host: state for host, state in self.hosts.items() if state.stand is Stand.READY}
        chosen = self._choose({host: state.ranks for host, state in ready.items()})
        if chosen is None:
            return
        for host, state in ready.items():
            state.chosen, state.able = chosen.get(host, ()), len(chosen.get(host, ()))
            if not state.chosen:
                state.stand, state.why = Stand.NOTHING, "none of its ranks is in the sample"

    def _began(self, state: HostState, event: Began) -> list[Instruction]:
        state.capture = event.capture
        state.stand = Stand.RECORDING if event.live else Stand.OVER
        if not event.live:
            return []
        return [End(event.host), Watch(event.host)] if self.stopping else [Watch(event.host)]

    def _broke(self, state: HostState, event: Broke) -> list[Instruction]:
        if state.stand not in _BEGUN:
            state.stand, state.why, state.kind = Stand.OUT, event.why, "unreachable"
            return self._begin_when_all_have_answered()
        state.resumes += 1
        if state.resumes <= RESUMES_MAX:
            return [Resume(event.host, began=state.stand is not Stand.BEGINNING)]
        state.stand, state.why, state.kind = Stand.LOST, event.why, "unreachable"
        return []

    def _stop(self) -> list[Instruction]:
        """Hosts that have not begun will not; the others end, and store what they have."""
        self.stopping = True
        for state in self.hosts.values():
            if state.stand in _WAITED_FOR or state.stand is Stand.READY:
                state.stand, state.why, state.kind = Stand.OUT, "stopped before it began", "interrupted"
        self._begun = True
        return [End(host) for host, state in self.hosts.items() if state.stand is Stand.RECORDING]

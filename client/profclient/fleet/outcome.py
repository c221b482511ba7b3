"""The result of a capture of many hosts, as values: JSON (docs/json.md), an exit code, the missing hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from profproto.v1 import capture_pb2 as pb

from profclient import errors
from profclient.as_json import capture_json
from profclient.fleet.clocks import Clock, apart_ns, boundary_of, reference_ns
from profclient.fleet.machine import HostState, Stand
from profclient.fleet.steps import Common, StepTime, common

_CODES: Final[dict[str, int]] = {kind.kind: kind.exit_code for kind in errors.KINDS}
_TRACED: Final = frozenset((pb.STATE_STORED, pb.STATE_PARTIAL))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A capture by its id, and how each host stands; `ranks` are those that were asked for, if any were."""

    id: str
    hosts: Mapping[str, HostState]
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    ranks: Sequence[int] = ()
    sampled_of: int = 0  # ranks, of which some were recorded; 0: all were
    step_times: Sequence[StepTime] = ()  # of these, before the capture

    @property
    def targets(self) -> list[tuple[str, pb.TargetStatus]]:
        """All of them, with their hosts."""
        return [
            (host, target)
            for host, state in self.hosts.items()
            if state.capture is not None
            for target in state.capture.targets
        ]

    @property
    def known(self) -> list[pb.TargetStatus]:
        """The targets of hosts that answered to the end: what became of the others' nobody knows."""
        return [target for host, target in self.targets if self.hosts[host].stand is not Stand.LOST]

    @property
    def start_ns(self) -> int | None:
        """The moment at which windows begin, by most hosts' clocks; None where that is no moment of all."""
        return boundary_of(state.capture for state in self.hosts.values() if state.capture is not None)

    @property
    def missing(self) -> dict[str, str]:
        """Hosts without an answer of their own, and why."""
        return {host: state.why for host, state in self.hosts.items() if state.stand in (Stand.OUT, Stand.LOST)}

    @property
    def busy(self) -> list[str]:
        """Hosts with processes that another capture holds: once that is over they can be recorded."""
        return [
            host
            for host, state in self.hosts.items()
            if state.kind == errors.BusyError.kind
            or (state.capture is not None and any(one.state == pb.STATE_BUSY for one in state.capture.targets))
        ]

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks that were asked for and that no host has."""
        there = {target.rank for _, target in self.targets if target.HasField("rank")}
        there.update(rank for state in self.hosts.values() for rank in state.unable_ranks)
        return [rank for rank in self.ranks if rank not in there]

    @property
    def sample(self) -> list[int]:
        """The ranks that were chosen to be recorded, where not all were."""
        return sorted(rank for state in self.hosts.values() for rank in state.chosen)

    @property
    def steps(self) -> Common | None:
        """The steps that all hosts recorded, where steps were asked for."""
        gone = [state for state in self.hosts.values() if state.stand in (Stand.OUT, Stand.LOST)]
        ranks = {rank for state in gone for rank in (*(state.chosen or state.ranks), *state.unable_ranks)}
        return common([state.capture for state in self.hosts.values() if state.capture is not None], ranks)

    @property
    def live(self) -> bool:
        """Something may still change."""
        return any(target.state < pb.STATE_STORED for target in self.known)

    @property
    def state(self) -> str:
        """One word for all."""
        if self.live:
            return "recording"
        if not self.known and any(state.stand is Stand.LOST for state in self.hosts.values()):
            return "lost"
        if {target.state for target in self.known} == {pb.STATE_CANCELLED}:
            return "cancelled"
        return {0: "stored", 5: "busy", 6: "partial"}.get(self.exit_code, "failed")

    @property
    def exit_code(self) -> int:
        """All stored, nobody missing: 0. Something stored: 6. Nothing, and somebody busy: 5, whatever the others are.

        Otherwise the reason's where all have the same, else 1.
        """
        states = {target.state for target in self.known}
        if states & _TRACED:
            whole = states == {pb.STATE_STORED} and not self.missing and not self.missing_ranks
            whole = whole and not (self.steps is not None and self.steps.missed)
            return 0 if whole else 6
        kinds = {state.kind for state in self.hosts.values() if state.kind}
        if self.busy and errors.Interrupted.kind not in kinds:
            return errors.BusyError.exit_code
        return _CODES.get(kinds.pop(), 1) if len(kinds) == 1 and not states else 1

    def to_json(self) -> dict[str, Any]:
        """The contract of docs/json.md."""
        reference = reference_ns(self.clocks)
        return {
            "capture": self.id,
            "state": self.state,
            "start_ns": self.start_ns,
            "missing_ranks": self.missing_ranks,
            "busy": self.busy,
            "sample": self._sample_json() if self.sampled_of else None,
            "steps": None if self.steps is None else _steps_json(self.steps),
            "hosts": [
                {
                    "host": host,
                    "stand": state.stand.value,
                    "message": state.why or None,
                    "unable": state.unable,
                    "clock": _clock_json(self.clocks[host], reference) if host in self.clocks else None,
                    "capture": capture_json(state.capture) if state.capture is not None else None,
                }
                for host, state in self.hosts.items()
            ],
        }

    def _sample_json(self) -> dict[str, Any]:
        times = [asdict(one) for one in self.step_times]
        return {"ranks": self.sample, "of": self.sampled_of, "step_times": times}


def _steps_json(steps: Common) -> dict[str, Any]:
    return {
        "asked": steps.asked,
        "common": steps.count,
        "first": steps.first,
        "by": "clock" if steps.first is None else "step",
        "unpaired": list(steps.unpaired),
        "missed": steps.missed,
    }


def _clock_json(clock: Clock, reference: int) -> dict[str, Any]:
    return {
        "offset_ns": clock.offset_ns,
        "uncertainty_ns": clock.uncertainty_ns,
        "apart_ns": apart_ns(clock, reference),
        "error_ns": clock.error_ns,
        "synchronised": clock.synchronised,
    }

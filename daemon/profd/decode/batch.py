"""Batches, which every decoder yields, whatever it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar

from profd.events import Dictionary, EventTable, Flows, Tracks
from profd.segments.meta import TraceMeta


@dataclass(slots=True)
class Batch:
    """Some events in file order and the flow records met among them."""

    events: EventTable
    flows: Flows | None = None
    before: int | None = None  # Unix ns: few events of later batches, if any, start before it. Only for speed
    # Unix ns: no event of later batches starts before it, and this input has no flow records. Its events up to then
    # may be stored while the rest is decoded.
    settled: int | None = None


@dataclass(slots=True)
class Findings:
    """A decoder's knowledge once it has read everything.

    `lost` counts events that were in the input and are in no batch, by reason:
    `bad_time`, `unknown_phase`, `too_large`, `truncated` …
    `counted` names anomalies that lost nothing: `end_before_start`, `unmatched_end`.
    """

    lost: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    top_level: dict[str, Any] = field(default_factory=dict)  # keys beside traceEvents, for export
    origin: TraceMeta | None = None  # of a trace that was stored elsewhere: what it says of where it is from
    truncated: str = ""  # a sentence when the input ends early; what was readable has been yielded
    thread_names: dict[int, str] = field(default_factory=dict)  # by track: of threads that another input has
    clock_error_ns: int | None = None  # times are this close to the host's clock; None: the input does not say

    def lose(self, reason: str, count: int = 1) -> None:
        """Count a loss."""
        if count:
            self.lost[reason] = self.lost.get(reason, 0) + count

    def count(self, anomaly: str, number: int = 1) -> None:
        """Count an anomaly that lost nothing."""
        if number:
            self.counted[anomaly] = self.counted.get(anomaly, 0) + number


class Decoder(ABC):
    """Reads one input from front to back, with bounded memory.

    The dictionaries ("name", "cat", "stack", "module", "inputs", "flow_id" …)
    and tracks are shared by all batches of the trace and grow as it is read.
    Raises BadTrace when nothing at all can be made of the input.
    """

    def __init__(
        self, file: BinaryIO, dictionaries: dict[str, Dictionary] | None = None, tracks: Tracks | None = None
    ) -> None:
        self.dictionaries = dictionaries if dictionaries is not None else {}
        self.tracks = tracks if tracks is not None else Tracks()
        self.findings = Findings()
        self._file = file

    # Whether its batches say how far they are settled. It is then best read behind the other inputs of its trace.
    settles: ClassVar[bool] = False

    def begin(self) -> None:  # noqa: B027 - most have nothing to do
        """Add all threads that have a pid to the tracks, for inputs that are read before `batches` of this one.

        For a decoder that settles. Raises BadTrace as `batches` does, which begins where nobody did.
        """

    @abstractmethod
    def batches(self) -> Generator[Batch]:
        """Yield batches until the input ends; `findings` is complete afterwards."""

"""One axis for the times of all traces of a capture: that of one trace's clock, by what the others' are ahead of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from profd.answers.ranks.job import Job, job_of, place_of, refused, said_of_clocks
from profd.query.captured import Captured, Member

_ALONE: Final = "Clocks: there is one trace."


class By(StrEnum):
    """How a trace was put on the axis."""

    REFERENCE = "reference"  # its clock is the axis
    COLLECTIVES = "collectives"  # its clock was compared by collectives in which all wait
    HOST = "host"  # by the clock of a trace of its host that was
    WALL_CLOCK = "wall clock"  # not at all: by what its host's clock said


@dataclass(frozen=True, slots=True)
class Placed:
    """A trace, and what its clock is ahead of the axis. In ns."""

    member: Member
    ahead_ns: int
    within_ns: int | None  # it is wrong by no more, proved for a clock that does not drift; None: nothing is proved
    by: By

    @property
    def start_ns(self) -> int | None:
        """Of the first event, on the axis."""
        return None if self.member.start_ns is None else self.member.start_ns - self.ahead_ns

    @property
    def end_ns(self) -> int | None:
        """Of the last event, on the axis."""
        return None if self.member.end_ns is None else self.member.end_ns - self.ahead_ns


@dataclass(frozen=True, slots=True)
class Axis:
    """All traces of a capture, in its order."""

    placed: list[Placed]
    message: str  # the sentence on clocks that `ranks` has, too
    remarks: list[str] = field(default_factory=list)  # why clocks of some were not compared


def axis_of(capture: Captured) -> Axis:
    """By the clocks of `ranks`, against the trace that most others are known against. Raises as `job_of`."""
    if len(capture.members) == 1:
        return Axis([Placed(capture.members[0], 0, 0, By.REFERENCE)], _ALONE)
    job = job_of(capture)
    known = {one.member.trace: one for one in _compared(job)}
    placed = [known.get(member.trace) or _beside(member, list(known.values()), job) for member in capture.members]
    without = [f"{place_of(one.member).capitalize()}: {one.why}." for one in job.left_out]
    return Axis(placed, str(said_of_clocks(job)["message"]), [*refused(job), *without])


def _compared(job: Job) -> list[Placed]:
    """Traces whose clocks are known against one of them; none where that is one alone."""
    if job.matched.clocks is None:
        return []
    reference = job.matched.clocks.best_known
    clocks = job.matched.clocks.against(reference)
    found = []
    for at, rank in enumerate(job.ranks):
        within = float(clocks.within[at])
        if math.isfinite(within):
            by = By.REFERENCE if at == reference else By.COLLECTIVES
            found.append(Placed(rank.member, round(float(clocks.ahead[at])), math.ceil(within), by))
    return found if len(found) > 1 else []


def _beside(member: Member, known: Sequence[Placed], job: Job) -> Placed:
    """One whose clock was not compared: as another trace of its host, else by the wall clock."""
    same = next((one for one in known if member.host and one.member.host == member.host), None)
    if same is None:
        return Placed(member, 0, None, By.WALL_CLOCK)
    return Placed(member, same.ahead_ns, None, By.HOST)

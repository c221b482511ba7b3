"""All ranks of a capture, looked at together: what the questions `ranks` and `comm` begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from profd.answers.finding import time
from profd.answers.ranks.incarnations import chosen, says
from profd.answers.ranks.matched import Matched, matched
from profd.answers.ranks.of_rank import Rank, look_at
from profd.answers.ranks.recorded import numbered_alike
from profd.errors import Exhausted
from profd.query.captured import Captured, LeftOut, Member


@dataclass(frozen=True, slots=True)
class Job:
    """What was recorded of it, a trace for each rank."""

    ranks: list[Rank]
    matched: Matched
    left_out: list[LeftOut]
    world: int | None  # ranks that the job has, where a trace says so


def job_of(capture: Captured) -> Job:
    """Read every trace; of several traces of one rank one is looked at (`chosen`)."""
    found: dict[int | str, list[Rank]] = {}
    left_out: list[LeftOut] = []
    for member, rank in capture.each(_looked_at):
        if isinstance(rank, LeftOut):
            left_out.append(rank)
        else:
            found.setdefault(member.trace if member.rank is None else member.rank, []).append(rank)
    ranks, others = chosen(list(found.values()))
    left_out += others
    ranks = [one for one in ranks if _takes_part(one, len(found), left_out)]
    ranks = [
        replace(one, recorded=alike)
        for one, alike in zip(ranks, numbered_alike([one.recorded for one in ranks]), strict=True)
    ]
    world = max((size for one in ranks if (size := world_of(one)) is not None), default=None)
    return Job(ranks, matched([one.recorded for one in ranks], [one.clock for one in ranks]), left_out, world)


def _looked_at(member: Member) -> Rank | LeftOut:
    try:
        return look_at(member)
    except Exhausted as error:
        return LeftOut(member, str(error))


def _takes_part(rank: Rank, count: int, left_out: list[LeftOut]) -> bool:
    """A process without a rank, steps and collectives (a loader's worker) is none of the job's."""
    if rank.member.rank is not None or any(says(rank)) or count == 1:
        return True
    left_out.append(LeftOut(rank.member, "it has no rank, no steps and no collectives"))
    return False


def world_of(rank: Rank) -> int | None:
    """How many ranks the job has, as Kineto writes it into a file."""
    said = rank.meta.top_level.get("distributedInfo")
    size = said.get("world_size") if isinstance(said, dict) else None
    return size if isinstance(size, int) and 0 < size < 1 << 31 else None


_SHOWN: Final = 8


def head(job: Job, capture: Captured, status: str, message: str | None) -> dict[str, Any]:
    """What each answer about ranks begins with (docs/json.md)."""
    described = capture.described()
    return {
        **described,
        "missing_ranks": not_recorded(job, described),
        "left_out": [one.as_json() for one in job.left_out],
        "status": status,
        "message": message,
        "remarks": [*_remarks(job), *refused(job)],
        "clocks": said_of_clocks(job),
    }


def not_recorded(job: Job, described: dict[str, Any]) -> list[list[int]]:
    """`missing_ranks`, and those behind the last one, where the size of the job is known."""
    missing: list[list[int]] = described["missing_ranks"]
    last = max((one.member.rank for one in job.ranks if one.member.rank is not None), default=-1)
    if job.world is None or job.world <= last + 1:
        return missing
    between = [run for run in missing if run[0] <= last]
    return [*between, [last + 1, max([job.world - 1, *(run[1] for run in missing)])]]


def _remarks(job: Job) -> list[str]:
    """What stands in the way of comparing the ranks, as sentences."""
    said = []
    sources = sorted({one.meta.source for one in job.ranks})
    if len(sources) > 1:
        said.append(
            f"The traces come from different sources ({', '.join(sources)}): what one of them does not record looks "
            "like idle time in its rank."
        )
    if len(worlds := {size for one in job.ranks if (size := world_of(one)) is not None}) > 1:
        sizes = " and ".join(map(str, sorted(worlds)))
        said.append(f"The traces are of jobs of {sizes} ranks: they may not be of one job.")
    for sentence, some in (
        ("ended early", [one for one in job.ranks if one.meta.truncated]),
        ("lost events", [one for one in job.ranks if one.meta.lost]),
        ("have no collectives", [one for one in job.ranks if not len(one.recorded)]),
        ("have more collectives than are looked at", [one for one in job.ranks if one.recorded.left_out]),
        ("have no device work, unlike others", _without_devices(job.ranks)),
    ):
        if some:
            said.append(f"Traces that {sentence}: {named(some)}.")
    return said


def _without_devices(ranks: Sequence[Rank]) -> list[Rank]:
    without = [one for one in ranks if not one.on_device]
    return without if len(without) < len(ranks) else []


def refused(job: Job) -> list[str]:
    """Ranks whose collectives are not known to be those of the others, as sentences."""
    return [
        f"Collectives of {name_of(job.ranks[rank])} could not be told to be those of the others: {why}."
        for rank, why in sorted(job.matched.refused.items())
    ]


def name_of(rank: Rank) -> str:
    """`rank 3`, or the trace of a process without one."""
    return place_of(rank.member)


def place_of(member: Member) -> str:
    """The same of a trace."""
    return f"trace {member.trace}" if member.rank is None else f"rank {member.rank}"


def named(ranks: Sequence[Rank]) -> str:
    """`rank 3, rank 7`, no more than _SHOWN."""
    more = len(ranks) - _SHOWN
    return ", ".join(map(name_of, ranks[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def said_of_clocks(job: Job) -> dict[str, Any]:
    """What is known of how far the clocks are apart."""
    clocks = job.matched.clocks
    if clocks is None:
        return {"within_ns": None, "message": f"Clocks: {job.matched.no_clocks}."}
    within = clocks.within[np.isfinite(clocks.within)]
    bad = len(clocks.within) - len(within)
    if len(within) < 2:
        return {"within_ns": None, "message": "Clocks: no collective in which all wait was found on two ranks."}
    most = int(within.max())
    text = f"Clocks are compared by collectives in which all wait: wrong by {time(most)} at most (proved)"
    without = f", but for {bad} ranks of which nothing is known" if bad else ""
    return {"within_ns": most, "message": f"{text}{without}."}

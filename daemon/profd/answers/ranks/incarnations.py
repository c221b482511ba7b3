"""One trace of each rank, where a capture has several: a rank's children, or starts of a job that was started again.

Ranks of two starts have nothing to do with each other, though their collectives have the same groups and numbers. So
the traces that are compared run beside each other: those of the start with most steps. What clocks of hosts say is
not trusted: where no trace of a rank of another host runs beside them, the one with most steps is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profd.answers.ranks.of_rank import Rank
from profd.query.captured import LeftOut

STARTS_MAX: Final = 64  # of a job that are tried: each is compared with all traces
_LESS: Final = "another trace of rank {rank} has more steps or collectives"
_OTHER_START: Final = "it ran before or after those that are compared: the job was started again"


def says(rank: Rank) -> tuple[int, int]:
    """How much a trace has to say of its rank: steps, then collectives."""
    return rank.measured.steps, len(rank.recorded)


def chosen(of_ranks: Sequence[Sequence[Rank]]) -> tuple[list[Rank], list[LeftOut]]:
    """The trace of each rank that is looked at, and why the others are not. `of_ranks`: all traces of each."""
    several = max(of_ranks, key=len, default=[])
    starts = sorted(several, key=says, reverse=True)[:STARTS_MAX]
    if len(starts) < 2:
        return [traces[0] for traces in of_ranks], []
    start = max(starts, key=lambda one: sum(says(rank)[0] for rank in _beside(of_ranks, one)))
    again = not all(_meet(start, one) for one in several)
    ranks, left_out = [], []
    for traces in of_ranks:
        near = [one for one in traces if _meet(start, one)]
        near = near or [one for one in traces if not again or one.member.host != start.member.host]
        best = max(near, key=says, default=None)
        ranks += [best] if best is not None else []
        for one in traces:
            if one is not best:
                why = _LESS.format(rank=one.member.rank) if one in near else _OTHER_START
                left_out.append(LeftOut(one.member, why))
    return ranks, left_out


def _beside(of_ranks: Sequence[Sequence[Rank]], start: Rank) -> list[Rank]:
    """Of each rank that has some the trace with most steps of those that run beside this one."""
    found = [[one for one in traces if _meet(start, one)] for traces in of_ranks]
    return [max(traces, key=says) for traces in found if traces]


def _meet(one: Rank, other: Rank) -> bool:
    """Whether they ran at the same time, for a moment at least; also where that is not known."""
    edges = (one.member.start_ns, one.member.end_ns, other.member.start_ns, other.member.end_ns)
    if any(edge is None for edge in edges):
        return True
    begin, end, its_begin, its_end = (edge or 0 for edge in edges)
    return begin < its_end and its_begin < end

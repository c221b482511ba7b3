"""The question `comm`: what a job's collectives carry, wait for, and who comes last to them (docs/json.md)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from profd.answers.explain import FOUND, NOT_ENOUGH, NOTHING_FOUND
from profd.answers.ranks import names
from profd.answers.ranks.job import Job, head, job_of, named
from profd.answers.ranks.matched import Group, arrived
from profd.answers.ranks.numbered import NOT_ASKED
from profd.answers.ranks.of_rank import Rank
from profd.events.table import Array
from profd.limits import RECALL_AT_END_COLLECTIVES_MAX
from profd.query.captured import Captured
from profd.segments.reader import TraceReader

ROWS_MAX: Final = 1024
LAST_SHOWN: Final = 8  # ranks that came last, the most frequent first


def comm_of_trace(trace: TraceReader) -> dict[str, Any]:
    """As of a capture that has this one trace."""
    return comm_of_capture(Captured([trace.directory]))


def comm_of_capture(capture: Captured) -> dict[str, Any]:
    """The answer of docs/json.md. Raises Exhausted for a trace of too many events."""
    job = job_of(capture)
    rows = [_row(job, group, op, at) for group in job.matched.groups for op, at in _by_op(group)]
    rows += _alone(job)
    rows.sort(key=lambda row: -row["total_ns"])
    status = FOUND if job.matched.groups else NOT_ENOUGH if rows else NOTHING_FOUND
    said = head(job, capture, status, _message(job, rows))
    return {
        **said,
        "remarks": [*said["remarks"], *_unnumbered(job)],
        "rows_left_out": max(len(rows) - ROWS_MAX, 0),
        "collectives": rows[:ROWS_MAX],
    }


def _message(job: Job, rows: list[dict[str, Any]]) -> str | None:
    if job.matched.groups:
        return None
    if not rows:
        return (
            "There are no collectives in these traces: kernels of NCCL or RCCL, or gloo's ranges in traces of PyTorch."
        )
    if len(job.ranks) < 2:
        return "One rank alone does not tell transfer from waiting."
    return "No collective of one rank is known to be that of another: transfer cannot be told from waiting."


def _unnumbered(job: Job) -> list[str]:
    """Why collectives of gloo have neither group nor sequence number, as a sentence."""
    found: dict[str, list[Rank]] = {}
    for one in job.ranks:
        if one.recorded.unnumbered:
            found.setdefault(one.recorded.unnumbered, []).append(one)
    if not found:
        return []
    whose = "; ".join(f"{named(some)}: {why}" for why, some in found.items())
    small = f"TORCH_FR_BUFFER_SIZE={RECALL_AT_END_COLLECTIVES_MAX} or less"
    remedy = f" (of attached processes it is at the end of a window with {small})"
    return [f"Groups and sequence numbers are not recorded ({whose}{remedy if NOT_ASKED in found else ''})."]


def _by_op(group: Group) -> list[tuple[str, Array]]:
    found: dict[str, list[int]] = {}
    for at, op in enumerate(group.op):
        found.setdefault(op, []).append(at)
    return [(op, np.array(at)) for op, at in found.items()]


def _row(job: Job, group: Group, op: str, at: Array) -> dict[str, Any]:
    """Collectives of one sort of a group. Times are of one rank: as long as the shortest, or on average."""
    lasted = (group.end - group.start)[:, at]
    shortest = lasted.min(axis=0)
    first = int(group.ranks[0])
    size = job.ranks[first].recorded.bytes[group.place[0, at]]
    if op == "all_gather":  # the buffer has a part of each
        alone = job.ranks[first].recorded.of_input[group.place[0, at]]
        size = np.where(alone, size * len(group.ranks), size)
    told = bool((size > 0).all())
    factor = names.bus_factor(op, len(group.ranks))
    speed = float(size.sum()) * factor / float(shortest.sum()) * 1e9 if told and factor and shortest.sum() else None
    return {
        "group": group.name or None,
        "op": op or None,
        "ranks": len(group.ranks),
        "matched": True,
        "count": len(at),
        "bytes": int(size.sum()) if told else None,
        "bus_bytes_per_second": speed,
        "total_ns": int(lasted.mean(axis=0).sum()),
        "transfer_ns": int(shortest.sum()),
        "waiting_ns": int((lasted - shortest).mean(axis=0).sum()),
        "waiting_max_ns": int((lasted - shortest).max()),
        "last": _last(job, group, at),
    }


def _last(job: Job, group: Group, at: Array) -> list[dict[str, Any]]:
    """Which ranks came last and how often; by the shortest time in it where clocks are not known."""
    clocks = job.matched.clocks
    if clocks is not None and np.isfinite(clocks.within[group.ranks]).all():
        rows, proved = (each[at] for each in arrived(group, clocks))
    else:
        rows, proved = (group.end - group.start)[:, at].argmin(axis=0), np.zeros(len(at), dtype=bool)
    count, sure = Counter(rows.tolist()), Counter(rows[proved].tolist())
    return [
        {**job.ranks[int(group.ranks[row])].member.origin, "times": times, "proved": sure[row]}
        for row, times in count.most_common(LAST_SHOWN)
    ]


def _alone(job: Job) -> list[dict[str, Any]]:
    """Collectives that were recorded, and not found on other ranks: by rank, since nothing says whose they are."""
    there: dict[int, set[int]] = {}
    for group in job.matched.groups:
        for row, rank in enumerate(group.ranks.tolist()):
            there.setdefault(rank, set()).update(group.place[row].tolist())
    found: dict[tuple[str, str], list[int]] = {}
    for rank, one in enumerate(job.ranks):
        lasted = (one.recorded.end - one.recorded.start).tolist()
        for at in set(range(len(one.recorded))) - there.get(rank, set()):
            sums = found.setdefault((one.recorded.group[at], one.recorded.op[at]), [0, 0, 0])
            sums[0] += 1
            sums[1] += int(one.recorded.bytes[at])
            sums[2] += lasted[at]
    unknown = {"ranks": None, "matched": False, "bus_bytes_per_second": None, "transfer_ns": None}
    return [
        {
            "group": group or None,
            "op": op or None,
            **unknown,
            "count": count,
            "bytes": size or None,
            "total_ns": total,
            "waiting_ns": None,
            "waiting_max_ns": None,
            "last": [],
        }
        for (group, op), (count, size, total) in found.items()
    ]

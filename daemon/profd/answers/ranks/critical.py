"""The question `critical` of a capture: what the end of the steps waited for over all ranks (docs/json.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd.answers.explain import FOUND, NOT_ENOUGH
from profd.answers.finding import percent
from profd.answers.ranks.job import Job, head, job_of, name_of
from profd.answers.ranks.meetings import NONE, Meetings, meetings
from profd.answers.ranks.ranks import judge
from profd.answers.ranks.without import NOT_PLAYED, Without, without_rank
from profd.query.captured import Captured

PLAYED_MAX: Final = 5  # ranks that are played as the others are, those with most time on the path
MEETINGS_MIN: Final = 8
SHARE_MIN: Final = 0.01  # of the steps, that a rank is said to cost


def critical_of_capture(capture: Captured, limit: int = 10) -> dict[str, Any]:
    """The answer of docs/json.md. Raises Exhausted for a trace of too many events."""
    job = job_of(capture)
    judged = judge(job)
    found = meetings(job.ranks, job.matched, judged.aligned)
    answer: dict[str, Any] = {
        **head(job, capture, NOT_ENOUGH, None),
        "steps": judged.aligned.as_json(),
        "path": None,
        "ranks": [],
        "ranks_left_out": 0,
        "collectives": [],
        "sentences": [],
    }
    if found.count < MEETINGS_MIN:
        return {**answer, "message": _why_not(job, found)}
    late = {one["rank"]: one["sentence"] for one in judged.late}
    return {**answer, "status": FOUND, **_answered(job, found, late, limit)}


def _why_not(job: Job, found: Meetings) -> str:
    if len(job.ranks) < 2:
        return "One rank waits for no other: ask about its trace."
    why = next(iter(job.matched.refused.values()), job.matched.no_clocks)
    lacking = f": {why}" if why else ""
    return f"{found.count} collectives of the steps are known to be the same on several ranks, too few{lacking}."


@dataclass(frozen=True, slots=True)
class _Path:
    """The chain of what the last meeting waited for."""

    work: dict[int, float]  # ns by rank
    times: Counter[int]  # meetings to which a rank came last
    shared: dict[tuple[str, str], float]  # ns by group and operation
    meetings: Counter[tuple[str, str]]

    @property
    def total(self) -> float:
        """How long the steps last."""
        return sum(self.work.values()) + sum(self.shared.values())


def _walk(found: Meetings) -> _Path:
    """From the last meeting back, each time over to the rank that came last."""
    ends = np.append(found.play()[0], 0.0)  # NONE: where the window begins
    path = _Path({}, Counter(), {}, Counter())
    column = np.zeros(found.count, dtype=np.int64)
    for one in found.met:
        column[one.at] = np.arange(len(one.at))
    at = found.count - 1
    while at != NONE:
        one, here = found.met[int(found.of[at])], int(column[at])
        arrivals = ends[one.before[:, here]] + one.work[:, here]
        last = int(arrivals.argmax())
        rank, key = int(one.ranks[last]), (one.group.name, one.group.op[int(one.column[here])])
        path.shared[key] = path.shared.get(key, 0.0) + float(one.shared[here])
        path.work[rank] = path.work.get(rank, 0.0) + float(one.work[last, here])
        path.meetings[key] += 1
        path.times[rank] += 1
        at = int(one.before[last, here])
    return path


def _answered(job: Job, found: Meetings, late: dict[int | None, str], limit: int) -> dict[str, Any]:
    path = _walk(found)
    whole = path.total
    order = sorted(path.work, key=lambda rank: (-path.work[rank], rank))
    without = {rank: without_rank(found, rank, whole) for rank in order[:PLAYED_MAX]}
    rows = [
        {
            **job.ranks[rank].member.origin,
            "path_ns": round(path.work[rank]),
            "times": path.times[rank],
            **(without[rank].as_json() if rank in without else NOT_PLAYED),
        }
        for rank in order
    ]
    sentences = []
    for rank, one in without.items():
        number = job.ranks[rank].member.rank
        if number in late and whole - one.middle >= SHARE_MIN * whole:
            sentences.append(f"{_sentence(name_of(job.ranks[rank]), one, whole)} {late[number]}")
    shown = rows[: limit or len(rows)]
    return {
        "path": {
            "duration_ns": round(whole),
            "work_ns": round(sum(path.work.values())),
            "collectives_ns": round(sum(path.shared.values())),
            "meetings": sum(path.meetings.values()),
        },
        "ranks": shown,
        "ranks_left_out": len(rows) - len(shown),
        "collectives": [
            {"group": group or None, "op": op, "times": path.meetings[group, op], "path_ns": round(ns)}
            for (group, op), ns in sorted(path.shared.items(), key=lambda item: -item[1])
        ],
        "sentences": sentences,
    }


def _sentence(name: str, one: Without, whole: float) -> str:
    def shorter(lasts: float) -> str:
        return percent(max(round(whole - lasts), 0), round(whole))

    if one.told:
        return f"If {name} were as the others, the steps were {shorter(one.middle)} shorter."
    if not one.ends:
        return (
            f"If {name} were as the others, the steps were up to {shorter(one.least)} shorter, or less, or not at all: "
            "without it ranks come together to collectives, which few of these steps show. Such a collective may last "
            "several times as long."
        )
    delays = percent(round(one.delays), round(whole))
    return (
        f"If {name} were as the others, the steps were {shorter(one.most)} to {shorter(one.least)} shorter; not told "
        f"more closely, since {delays} of them are delays (what takes longer than the same in other steps): a busy "
        "host, a busy network, or steps that differ."
    )

"""The question `ranks`: of each rank where its steps went, and which ranks the others wait for (docs/json.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd.answers.explain import FOUND, NOT_ENOUGH, NOTHING_FOUND
from profd.answers.finding import STEPS_SHOWN, ordinal, percent, time
from profd.answers.ranks.cause import Cause, cause_of
from profd.answers.ranks.job import Job, head, job_of, name_of
from profd.answers.ranks.of_rank import Rank
from profd.answers.ranks.stragglers import Straggler, TooFew, stragglers
from profd.answers.ranks.work import Aligned, Compared, align, compare
from profd.answers.spans import Spans
from profd.events.table import Array
from profd.query.captured import Captured
from profd.segments.reader import TraceReader

HEAT_STEPS_MAX: Final = 512  # columns of the map; of more steps several are one, the worst of them


def ranks_of_trace(trace: TraceReader) -> dict[str, Any]:
    """As of a capture that has this one trace."""
    return ranks_of_capture(Captured([trace.directory]))


@dataclass(frozen=True, slots=True)
class Judged:
    """Which ranks are late, or why nobody can say it."""

    aligned: Aligned
    compared: list[Compared]
    status: str
    message: str | None  # None: there are late ones
    late: list[dict[str, Any]]  # as in the answer, the most costly first


def judge(job: Job) -> Judged:
    """Compare the ranks of a job."""
    aligned = align(job.ranks, job.matched.groups)
    compared = compare(job.ranks, job.matched.groups, aligned)
    judged = [stragglers(one.work, step_ns(job.ranks, one)) for one in compared]
    late = [
        _straggler(one, which, aligned, job.ranks)
        for which, those in zip(compared, judged, strict=True)
        if not isinstance(those, TooFew)
        for one in those
    ]
    late.sort(key=lambda one: -one["total_ns"])
    status = FOUND if late else NOTHING_FOUND if _looked(judged) else NOT_ENOUGH
    return Judged(aligned, compared, status, None if late else _message(job, aligned, judged), late)


def ranks_of_capture(capture: Captured) -> dict[str, Any]:
    """The answer of docs/json.md."""
    job = job_of(capture)
    judged = judge(job)
    return {
        **head(job, capture, judged.status, judged.message),
        "steps": {**judged.aligned.as_json(), "aligned_by": judged.aligned.how or None},
        "ranks": _rows(job),
        "stragglers": judged.late,
        "heat": _heat(job.ranks, judged.aligned, judged.compared),
    }


def step_ns(ranks: Sequence[Rank], compared: Compared) -> float:
    """A step in the middle, of ranks that are compared."""
    return float(np.median(np.concatenate([ranks[rank].measured.durations for rank in compared.ranks.tolist()])))


def _looked(judged: Sequence[list[Straggler] | TooFew]) -> bool:
    return any(not isinstance(one, TooFew) for one in judged)


def _message(job: Job, aligned: Aligned, judged: Sequence[list[Straggler] | TooFew]) -> str:
    if _looked(judged):
        return "Stragglers: none. No rank is slower than the others by more than chance explains."
    few = next((one.why for one in judged if isinstance(one, TooFew)), "")
    return f"Stragglers: not enough data. {few or _why_not(job, aligned)}."


def _why_not(job: Job, aligned: Aligned) -> str:
    if len(job.ranks) < 2:
        return "one rank has no others to be compared with"
    if not any(one.measured.steps for one in job.ranks):
        return job.ranks[0].measured.lacking or "there are no steps"
    if not job.matched.groups:
        why = next(iter(job.matched.refused.values()), job.matched.no_clocks)
        return f"waiting cannot be told from work, since {why}"
    if not aligned.how:
        return "nothing tells which step of one rank is which of another"
    return "the ranks that meet in collectives have no steps in common"


def _rows(job: Job) -> list[dict[str, Any]]:
    waiting = _waiting(job)
    matched = [0] * len(job.ranks)
    for group in job.matched.groups:
        for rank in group.ranks.tolist():
            matched[rank] += group.place.shape[1]
    clocks = job.matched.clocks
    rows = []
    for at, one in enumerate(job.ranks):
        known = clocks is not None and len(job.ranks) > 1 and np.isfinite(clocks.within[at])
        rows.append(
            {
                **one.member.origin,
                "source": one.meta.source,
                **_of_steps(one, waiting[at]),
                "collectives": len(one.recorded),
                "matched": matched[at],
                "run_queue_share": one.step_thread_queued,
                "clock_ahead_ns": round(float(clocks.ahead[at])) if clocks is not None and known else None,
                "clock_within_ns": round(float(clocks.within[at])) if clocks is not None and known else None,
                "message": one.measured.lacking or None,
                "device": one.device,
            }
        )
    return rows


def _of_steps(one: Rank, waited: int | None) -> dict[str, Any]:
    """A step as the mean of the measured ones. Computing, exposed collectives, copies and idle time add up to it."""
    steps = one.measured.steps
    parts = {
        "step_ns": one.measured.total,
        "compute_ns": one.computing,
        "exposed_ns": one.exposed.total,
        "waiting_ns": waited,
        "copying_ns": one.copying,
        "idle_ns": one.idle,
        "idle_loading_ns": one.loading,
        "idle_late_launch_ns": one.late if one.on_device else None,
    }
    middle = round(float(np.median(one.measured.durations))) if steps else None
    means = {name: None if not steps or ns is None else round(ns / steps) for name, ns in parts.items()}
    return {"steps": steps, "step_p50_ns": middle, **means, "on_device": one.on_device}


def _waiting(job: Job) -> list[int | None]:
    """Of each rank, how long it was in collectives that others had not come to, with nothing computed beside."""
    parts: list[list[Spans]] = [[] for _ in job.ranks]
    for group in job.matched.groups:
        waited = group.waited
        for row, rank in enumerate(group.ranks.tolist()):
            begin = group.start[row]
            parts[rank].append(Spans.union(begin, begin + waited[row]))
    return [_together(some, one) if some else None for some, one in zip(parts, job.ranks, strict=True)]


def _together(parts: Sequence[Spans], one: Rank) -> int:
    whole = Spans.union(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts]))
    return whole.common(one.exposed).total


def _straggler(one: Straggler, compared: Compared, aligned: Aligned, ranks: Sequence[Rank]) -> dict[str, Any]:
    late = ranks[int(compared.ranks[one.rank])]
    numbers = aligned.numbers[compared.steps[one.steps]].tolist() if one.steps else []
    cause = cause_of(one, compared, aligned, ranks)
    steps = len(compared.steps)
    return {
        **late.member.origin,
        "sentence": _sentence(one, late, cause, steps, step_ns(ranks, compared), numbers),
        "always": one.always,
        "every": one.every or None,
        "steps": numbers[:STEPS_SHOWN],
        "n_steps": len(numbers) or steps,
        "of_steps": steps,
        "excess_ns": round(one.excess_ns),
        "total_ns": round(one.excess_ns * (steps if one.always else 1)),
        "chance": one.chance,
        "compared_with": len(compared.ranks) - 1,
        "cause": None if cause is None else {"sentence": cause.sentence, "name": cause.name or None},
    }


def _sentence(one: Straggler, late: Rank, cause: Cause | None, steps: int, lasts: float, numbers: list[int]) -> str:
    if one.always:
        how = (
            f"comes {time(one.excess_ns)} a step later than the others ({percent(round(one.excess_ns), round(lasts))})"
        )
    else:
        each = time(one.excess_ns / len(numbers))
        rhythm = f" (every {ordinal(one.every)})" if one.every else ""
        how = f"comes {each} late in {len(numbers)} of {steps} steps{rhythm}"
    why = cause.sentence if cause else "nothing that was recorded tells why"
    return f"{name_of(late).capitalize()} {how}: {why}."


def _heat(ranks: Sequence[Rank], aligned: Aligned, compared: Sequence[Compared]) -> dict[str, Any]:
    """Rank by step: by how much of a step each is later than the others in the middle."""
    columns = len(aligned.numbers)
    late = np.full((len(ranks), columns), np.nan)
    for one in compared:
        excess = (one.work - np.median(one.work, axis=0)) / max(step_ns(ranks, one), 1.0)
        late[np.ix_(one.ranks, one.steps)] = excess
    if not compared and aligned.how:
        lasted = np.stack([ranks[at].measured.durations[place] for at, place in aligned.place.items()])
        middle = np.maximum(np.median(lasted, axis=0), 1)
        late[list(aligned.place)] = (lasted - middle) / middle
    together = -(-columns // HEAT_STEPS_MAX) if columns else 1
    numbers = aligned.numbers[::together].tolist()
    return {
        "of": "work" if compared else "step" if aligned.how else None,
        "steps_together": together,
        "steps": numbers,
        "rows": [
            {**one.member.origin, "late": _worst(late[at], together), "counts_ahead": _counts_ahead(one, at, aligned)}
            for at, one in enumerate(ranks)
        ]
        if columns
        else [],
    }


def _counts_ahead(rank: Rank, at: int, aligned: Aligned) -> int | None:
    """By how much the rank calls a step more than the first rank does."""
    place = aligned.place.get(at)
    return None if place is None else int(rank.measured.numbers[int(place[0])] - aligned.numbers[0])


def _worst(late: Array, together: int) -> list[float | None]:
    padded = np.append(late, np.full(-len(late) % together, np.nan)).reshape(-1, together)
    there = ~np.isnan(padded).all(axis=1)
    worst = np.where(np.isnan(padded), -np.inf, padded).max(axis=1)
    return [round(value, 4) if known else None for value, known in zip(worst.tolist(), there.tolist(), strict=True)]

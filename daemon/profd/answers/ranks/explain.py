"""The question `explain` of a capture: late ranks first, then what is found in the traces, each finding once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from profd.answers.explain import FOUND, NOT_ENOUGH, NOTHING_FOUND, SYMPTOMS, explain
from profd.answers.finding import Finding, as_json
from profd.answers.ranks.job import Job, job_of, not_recorded
from profd.answers.ranks.ranks import Judged, judge
from profd.errors import BadInput, Exhausted
from profd.query.captured import Captured, LeftOut, Member

STRAGGLER: Final = "late-rank"
_CONFIRM: Final = "look at `profctl ranks` of the capture, and run the job with that rank on another host"


def explain_of_capture(capture: Captured, **part: Any) -> dict[str, Any]:
    """The answer of docs/json.md. Raises what the function of a trace does, but for those that are too large.

    BadInput for a part: which ranks are late is told of all steps that they have in common.
    """
    if any(value is not None for value in part.values()):
        raise BadInput("--step and --window of findings are of one trace: name a trace of the capture")
    job = job_of(capture)
    judged = judge(job)
    measured = _measured(job)
    found = [_late(one, measured["duration_ns"]) for one in judged.late]
    answers: list[tuple[Member, dict[str, Any]]] = []
    left_out = list(job.left_out)
    for member, answer in capture.each(_explained):
        if isinstance(answer, LeftOut):
            left_out.append(answer)
        else:
            answers.append((member, answer))
    found += _of_traces(answers)
    for place, one in enumerate(found, start=1):
        one["rank"] = place
    described = capture.described()
    lacking = not found and all(answer["status"] == NOT_ENOUGH for _, answer in answers)
    return {
        **described,
        "missing_ranks": not_recorded(job, described),
        "left_out": [one.as_json() for one in {one.member.trace: one for one in left_out}.values()],
        "status": FOUND if found else NOT_ENOUGH if lacking else NOTHING_FOUND,
        "message": judged.message,
        "measured": measured,
        "findings": found,
        "looked": _looked(answers, judged),
    }


def _explained(member: Member) -> dict[str, Any] | LeftOut:
    try:
        return explain(member.open())
    except Exhausted as error:
        return LeftOut(member, str(error))


def _measured(job: Job) -> dict[str, Any]:
    """What shares are of: the mean of the ranks."""
    measured = [one.measured for one in job.ranks if one.measured.steps]
    if not measured:
        return {"steps": 0, "first_step": None, "last_step": None, "steps_left_out": 0, "from": None, "duration_ns": 0}
    return {
        "steps": max(one.steps for one in measured),
        "first_step": min(one.numbers[0] for one in measured),
        "last_step": max(one.numbers[-1] for one in measured),
        "steps_left_out": max(one.left_out for one in measured),
        "from": measured[0].how or None,
        "duration_ns": round(float(np.mean([one.total for one in measured]))),
    }


def _late(one: dict[str, Any], measured_ns: int) -> dict[str, Any]:
    """A straggler as a finding: were it as the others, no more than it is late by is won."""
    numbers = {name: one[name] for name in ("excess_ns", "chance", "compared_with", "n_steps", "of_steps")}
    finding = Finding(
        STRAGGLER,
        one["sentence"],
        bound_ns=min(one["total_ns"], measured_ns),
        numbers=numbers,
        steps=one["steps"],
        assumptions=["the others wait for it, and nothing else holds them up meanwhile"],
        confirm=_CONFIRM,
    )
    return {**as_json(finding, 0, measured_ns), "trace": one["trace"], "of_ranks": [one["rank"]], "traces": 1}


def _of_traces(answers: list[tuple[Member, dict[str, Any]]]) -> list[dict[str, Any]]:
    """By id: as the trace says it that it weighs most in, and which ranks have it. Causes before symptoms."""
    by_id: dict[str, list[tuple[Member, dict[str, Any]]]] = {}
    for member, answer in answers:
        for one in answer["findings"]:
            by_id.setdefault(one["id"], []).append((member, one))
    found = []
    for some in by_id.values():
        member, one = max(some, key=lambda pair: pair[1]["bound_share"] or 0)
        ranks = sorted({each.rank for each, _ in some if each.rank is not None})
        found.append({**one, "trace": member.trace, "of_ranks": ranks, "traces": len(some)})
    return sorted(found, key=lambda one: (one["id"] in SYMPTOMS or bool(one["symptom_of"]), -(one["bound_share"] or 0)))


def _looked(answers: list[tuple[Member, dict[str, Any]]], judged: Judged) -> list[dict[str, Any]]:
    """Of each rule the best that a trace has to say: found, nothing found, or what all of them lack."""
    order = (FOUND, NOTHING_FOUND, NOT_ENOUGH)
    best: dict[str, dict[str, Any]] = {}
    for _, answer in answers:
        for one in answer["looked"]:
            before = best.get(one["id"])
            if before is None or order.index(one["status"]) < order.index(before["status"]):
                best[one["id"]] = one
    lacking = judged.message if judged.status == NOT_ENOUGH else None
    ours = {"id": STRAGGLER, "status": judged.status, "message": lacking}
    return [ours, *best.values()]

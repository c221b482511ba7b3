"""The question `explain`: every detector looks, causes first, and the answer says what each of them did."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from profd.answers.detectors import (
    allocator,
    casts,
    communication,
    copies,
    cpu_contention,
    data_loading,
    event_loop,
    garbage,
    gil_contention,
    host_bound,
    jit_compilation,
    lock_wait,
    memory_growth,
    operator_loop,
    optimizer_loop,
    python_functions,
    recompilation,
    resident_growth,
    single_collectives,
    slow_steps,
    small_kernels,
    synchronisation,
)
from profd.answers.facts import Facts
from profd.answers.finding import Finding, Silence, Verdict, as_json
from profd.answers.kept_steps import kept_steps
from profd.query.part import Part, part_of
from profd.segments.reader import TraceReader
from profd.segments.rollups import kept_value

FOUND: Final = "found"
NOTHING_FOUND: Final = "nothing found"
NOT_ENOUGH: Final = "not enough data"
_LISTS: Final = ("findings", "looked")
_KEYS: Final = {"status", "message", "measured", *_LISTS}

_OF_STEPS: Final = (
    data_loading,
    recompilation,
    garbage,
    casts,
    operator_loop,
    optimizer_loop,
    single_collectives,
    slow_steps,
    memory_growth,
)
_OF_DEVICES: Final = (synchronisation, small_kernels, communication, copies, allocator, host_bound)
_OF_THE_WINDOW: Final = (
    jit_compilation,
    python_functions,
    event_loop,
    lock_wait,
    gil_contention,
    cpu_contention,
    resident_growth,
)
_OF_THE_WHOLE: Final = (gil_contention, cpu_contention, resident_growth)
"""The kernel's counts and looks that these have are of the whole recording."""
SYMPTOMS: Final = frozenset({host_bound.ID})
_NEED_LAUNCHES: Final = (synchronisation, small_kernels, host_bound)


def explain(trace: TraceReader, **part: Any) -> dict[str, Any]:
    """The answer of docs/json.md, as it was kept of a whole trace. `part`: arguments of a window or of steps.

    Raises Exhausted for a trace, or a part of one, of too many events.
    """
    chosen = part_of(trace, steps=kept_steps, **part)
    if not chosen.is_whole:
        return _worked_out(trace, chosen)
    return kept_value(trace.rollups, "explain", _is_answer, lambda: _worked_out(trace, chosen))


def _is_answer(kept: Any) -> bool:
    """As far as others count on it."""
    return isinstance(kept, dict) and kept.keys() == _KEYS and all(isinstance(kept[name], list) for name in _LISTS)


def _worked_out(trace: TraceReader, part: Part) -> dict[str, Any]:
    facts = Facts(trace, part.window)
    looked = {detector: _verdict(detector, facts) for detector in (*_OF_STEPS, *_OF_DEVICES, *_OF_THE_WINDOW)}
    found = ranked([verdict for verdict in looked.values() if isinstance(verdict, Finding)])
    measured = facts.measured
    lacking = [verdict for verdict in looked.values() if isinstance(verdict, Silence) and verdict.lacking]
    status = FOUND if found else NOT_ENOUGH if measured.lacking else NOTHING_FOUND
    return {
        "status": status,
        "message": _message(status, measured.lacking, len(looked), len(lacking)),
        "measured": {
            "steps": measured.steps,
            "first_step": measured.numbers[0] if measured.numbers else None,
            "last_step": measured.numbers[-1] if measured.numbers else None,
            "steps_left_out": measured.left_out,
            "from": measured.how or None,
            "duration_ns": measured.total,
        },
        "findings": [as_json(finding, rank, measured.total) for rank, finding in enumerate(found, start=1)],
        "looked": [_look(detector, verdict) for detector, verdict in looked.items()],
    }


def ranked(findings: list[Finding]) -> list[Finding]:
    """Causes by their bounds, those without one behind them, then symptoms; these name only causes that were found."""
    by_id = {finding.id: finding for finding in findings}
    kept = []
    for finding in findings:
        causes = [by_id[cause] for cause in finding.symptom_of if cause in by_id]
        kept.append(replace(finding, symptom_of=[cause.id for cause in causes if _may_explain(cause, finding)]))
    return sorted(kept, key=lambda one: (one.id in SYMPTOMS or bool(one.symptom_of), -(one.bound_ns or 0)))


def _may_explain(cause: Finding, symptom: Finding) -> bool:
    """Where both are of some steps: the cause is in half of the symptom's or more."""
    if not (cause.steps and symptom.steps):
        return True
    return 2 * len(set(cause.steps) & set(symptom.steps)) >= len(symptom.steps)


def _verdict(detector: ModuleType, facts: Facts) -> Verdict:
    if facts.window is not None and detector in _OF_THE_WHOLE:
        return Silence("it is told of the whole trace alone")
    if detector not in _OF_THE_WINDOW and facts.measured.lacking:
        return Silence(facts.measured.lacking)
    if detector in _OF_DEVICES and not len(facts.work):
        return Silence("the trace has no device work")
    if detector in _NEED_LAUNCHES and not facts.has_launches:
        return Silence("the trace does not say which calls launched device work")
    verdict: Verdict = detector.look(facts)
    return verdict


def _look(detector: ModuleType, verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Finding):
        return {"id": detector.ID, "status": FOUND, "message": None}
    status = NOT_ENOUGH if verdict.lacking else NOTHING_FOUND
    return {"id": detector.ID, "status": status, "message": verdict.lacking or None}


def _message(status: str, lacking: str, detectors: int, blind: int) -> str | None:
    if status == FOUND:
        return lacking or None
    if lacking:
        return f"There is too little to look at. {lacking}"
    return f"Nothing found: {detectors - blind} of {detectors} rules could look, and none of them has a cause to name."

"""The command that helps after the answer of a capture: `next:` of the summary."""

from __future__ import annotations

from typing import Any, Final

from profd.derive.steps import Steps
from profd.model.shortfall import NO_OPERATORS, OBSERVER_COMES, OBSERVER_FIX
from profd.query.steps import outliers
from profd.segments.meta import TraceMeta

EXCESS_SHARE: Final = 0.05  # of the time of all steps: a run of slow steps that took less beyond the median is no cause


def following(
    trace: str,
    meta: TraceMeta,
    steps: Steps,
    alive: dict[str, Any] | None,
    sampled: bool,
    *,
    grows: bool = False,
) -> str:
    """What helps after a capture, the most pressing first.

    Without operators of PyTorch, what brings them; of memory that grows, where it is made; of steps that are slow, what
    was in them; else where all time went. `sampled`: most of that was seen by samples beside operators, which `top`
    leaves out. `grows`: the process does, in which PyTorch's operators run.
    """
    if brings := _operators(meta):
        return brings
    if alive is not None and any(row["grows"] for row in alive["rows"]):
        return _with_stacks(meta) or f"profctl memory {trace}"
    if grows and not meta.options.get("memory") and (allocations := _with_allocations(meta)):
        return allocations
    if slow := slow_run(steps):
        first, last = slow
        return f"profctl top {trace} --step {first}" + (f"..{last}" if last > first else "")
    return f"profctl tree {trace} --merged" if sampled else f"profctl top {trace}"


def _operators(meta: TraceMeta) -> str:
    """The build of an observer; where the daemon makes one, the same capture again. Empty: neither would help."""
    said = next((one for one in meta.not_honoured if one.startswith(NO_OPERATORS)), "")
    if OBSERVER_FIX in said:
        return "profctl torch build"
    return _again(meta) if OBSERVER_COMES in said else ""


def _with_stacks(meta: TraceMeta) -> str:
    """The same capture again with Python functions, where it has none; empty where nobody can make it."""
    again = "" if meta.options.get("stacks") else _again(meta)
    return again and f"{again} --memory --stacks"


def _with_allocations(meta: TraceMeta) -> str:
    """The same capture again with allocations and their callers; empty where its source has none."""
    again = _again(meta) if meta.known_traits.allocations else ""
    return again and f"{again} --memory --stacks"


def _again(meta: TraceMeta) -> str:
    """A capture of the same process that lasts as long; empty where nobody can make it."""
    if not meta.capture or not meta.pid:
        return ""
    asked = meta.options.get("duration_ns")
    return f"profctl start --pid {meta.pid}" + (f" --duration {asked / 1e9:g}s" if asked else "")


def slow_run(steps: Steps) -> tuple[int, int] | None:
    """Numbers of the first and the last of the slow steps in a row that took most time beyond the median together."""
    found = outliers(steps.durations)
    if found is None or not found.n:
        return None
    best = (0, 0, 0)  # excess in ns, first, last
    run = best
    for number, lasted in zip(steps.numbers, steps.durations.tolist(), strict=True):
        if lasted <= found.above_ns:
            run = (0, 0, 0)
            continue
        follows = run[0] > 0 and number == run[2] + 1
        run = (
            (run[0] + lasted - found.median_ns, run[1], number)
            if follows
            else (lasted - found.median_ns, number, number)
        )
        best = max(best, run)
    return best[1:] if best[0] >= EXCESS_SHARE * float(steps.durations.sum()) else None

"""The command that helps after the answer of a capture: `next:` of the summary."""

from __future__ import annotations

from typing import Any, Final

from profd.derive.steps import Steps
from profd.query.steps import outliers
from profd.segments.meta import TraceMeta

EXCESS_SHARE: Final = 0.05  # of the time of all steps: a run of slow steps that took less beyond the median is no cause


def following(trace: str, meta: TraceMeta, steps: Steps, alive: dict[str, Any] | None, sampled: bool) -> str:
    """Of memory that grows, where it is made; of steps that are slow, what was in them; else where all time went.

    `sampled`: most of that was seen by samples beside operators, which `top` leaves out.
    """
    if alive is not None and any(row["grows"] for row in alive["rows"]):
        return _with_stacks(meta) or f"profctl memory {trace}"
    if slow := slow_run(steps):
        first, last = slow
        return f"profctl top {trace} --step {first}" + (f"..{last}" if last > first else "")
    return f"profctl tree {trace} --merged" if sampled else f"profctl top {trace}"


def _with_stacks(meta: TraceMeta) -> str:
    """The same capture again with Python functions, where it has none; empty where nobody can make it."""
    if not meta.capture or not meta.pid or meta.options.get("stacks"):
        return ""
    asked = meta.options.get("duration_ns")
    lasting = f" --duration {asked / 1e9:g}s" if asked else ""
    return f"profctl start --pid {meta.pid}{lasting} --memory --stacks"


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

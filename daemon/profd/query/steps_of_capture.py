"""The training steps of a capture: those of each rank, and each step over the ranks (docs/json.md)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from profd.derive.steps import PROFILER_STEP
from profd.errors import Exhausted
from profd.limits import CAPTURE_ROWS_MAX
from profd.query.captured import Captured
from profd.query.steps import steps_of_trace


def steps_of_capture(capture: Captured) -> dict[str, Any]:
    """`profctl steps CAPTURE --json`: rows as of each trace, and what the ranks took for the steps of one number.

    Exhausted beyond CAPTURE_ROWS_MAX rows.
    """
    rows: list[dict[str, Any]] = []
    without: list[dict[str, Any]] = []
    by_program = True
    for member, found in capture.each(steps_of_trace):
        rows += [{**member.origin, **step} for step in found["steps"]]
        by_program = by_program and found["from"] in (None, PROFILER_STEP)
        if not found["n"]:
            without.append({**member.origin, "why": found["message"]})
        if len(rows) > CAPTURE_ROWS_MAX:
            raise Exhausted(
                f"the traces have more than {CAPTURE_ROWS_MAX:,} steps together, the limit: ask one of them"
            )
    return {
        **capture.described(),
        "left_out": without,
        "n": len(rows),
        "message": None if rows else without[0]["why"],
        "numbered_by": None if not rows else "program" if by_program else "window",
        "asked": _asked(capture),
        "by_number": _by_number(rows),
        "steps": rows,
    }


def _asked(capture: Captured) -> dict[str, int] | None:
    """The steps that all were to record, where one was named for all to begin at; more are recorded around them."""
    asked = {one.asked for one in capture.members}
    steps = asked.pop() if len(asked) == 1 else None
    return {"first": steps.start, "n": len(steps)} if steps else None


def _by_number(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each step by its number: how long the ranks took, and which took longest. The first of equal ones."""
    numbered: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        numbered[row["number"]].append(row)
    return [_over_ranks(number, numbered[number]) for number in sorted(numbered)]


def _over_ranks(number: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    lasting = np.array([row["duration_ns"] for row in rows])
    slowest = rows[int(lasting.argmax())]
    return {
        "number": number,
        "traces": len({row["trace"] for row in rows}),
        "start_ns": min(row["start_ns"] for row in rows),
        "duration_min_ns": int(lasting.min()),
        "duration_p50_ns": int(np.median(lasting)),
        "duration_max_ns": int(lasting.max()),
        "slowest": {name: slowest[name] for name in ("rank", "host", "trace")},
    }

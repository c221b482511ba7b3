"""Key averages as a question: the rows of `profctl top --json`."""

from __future__ import annotations

import json
from typing import Any

from profd.query.averages import Grouping, averages_of_trace, sort_averages
from profd.query.part import part_of
from profd.segments.reader import TraceReader


def top(
    trace: TraceReader,
    *,
    group_by: str,
    group_by_input_shape: bool,
    group_by_stack_n: int,
    limit: int,
    sort_by: str,
    with_backward: bool,
    raw: bool,
    **part: Any,
) -> list[dict[str, Any]]:
    """Sorted, and cut to `limit` (0: all). `part`: arguments of `part_of`."""
    grouping = Grouping(group_by_input_shape, group_by_stack_n, group_by == "module")
    with_backward = with_backward or sort_by == "backward_time_total"
    rows = averages_of_trace(
        trace, raw=raw, grouping=grouping, with_backward=with_backward, part=part_of(trace, **part)
    )
    ordered = sort_averages(rows, sort_by)
    answer = [row.as_json() for row in (ordered[:limit] if limit else ordered)]
    return [{**row, "input_shapes": json.loads(row["input_shapes"] or "null")} for row in answer]

"""Key averages as a question: the rows of `profctl top --json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from profd.errors import BadInput
from profd.query.average_rows import as_json, columns_of, kept_table, merged, ordered, rows_of
from profd.query.averages import Grouping, averages_of_trace, sort_averages
from profd.query.captured import Captured, LeftOut, Member, where_there_is
from profd.query.part import part_of, part_of_member
from profd.segments.reader import TraceReader

BY: Final = ("rank", "host", "trace")


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
    name = _kept_as(grouping, with_backward, raw, part)
    kept = kept_table(trace.rollups, name) if name else None
    if kept is not None:
        rows = rows_of(kept)
    else:
        rows = averages_of_trace(
            trace, raw=raw, grouping=grouping, with_backward=with_backward, part=part_of(trace, **part)
        )
        if name:
            trace.rollups.keep_table(name, lambda: columns_of(rows))
    ordered = sort_averages(rows, sort_by)
    answer = [row.as_json() for row in (ordered[:limit] if limit else ordered)]
    return [{**row, "input_shapes": json.loads(row["input_shapes"] or "null")} for row in answer]


def top_of_capture(
    capture: Captured,
    *,
    by: str,
    group_by: str,
    group_by_input_shape: bool,
    group_by_stack_n: int,
    limit: int,
    sort_by: str,
    with_backward: bool,
    raw: bool,
    **part: Any,
) -> dict[str, Any]:
    """The rows of all traces added up, or with `by` those of each rank, host or trace. Otherwise as `top`.

    A trace that has not the step or thread of `part` is named in `left_out`. BadInput where none has it.
    """
    grouping = Grouping(group_by_input_shape, group_by_stack_n, group_by == "module")
    with_backward = with_backward or sort_by == "backward_time_total"
    edges = capture.start_ns, capture.end_ns
    name = _kept_as(grouping, with_backward, raw, part)

    def kept(member: Member) -> pa.Table | None:
        return kept_table(member.rollups, name) if name else None

    def look(member: Member) -> pa.Table:
        reader = member.open()
        chosen = part_of_member(reader, edges, **part)
        rows = averages_of_trace(reader, raw=raw, grouping=grouping, with_backward=with_backward, part=chosen)
        table = columns_of(rows)
        if name:
            member.rollups.keep_table(name, lambda: table)
        return table

    groups = _Groups(by)
    left_out: list[LeftOut] = []
    table = merged(_parts(capture.each(where_there_is(look), kept=kept), groups, left_out))
    if len(left_out) == len(capture.members):
        raise BadInput(left_out[0].why)
    rows = as_json(ordered(table, sort_by, limit))
    return {
        **capture.described(),
        "left_out": [one.as_json() for one in left_out],
        "by": by or None,
        "rows": [{**groups.origin(row.pop("group")), **row} for row in rows],
    }


def _kept_as(grouping: Grouping, with_backward: bool, raw: bool, part: dict[str, Any]) -> str:
    """What rollups call the rows that are asked for; empty: they are worked out of the events whenever they are."""
    whole = not any(value is not None and value != "" for value in part.values())
    if not whole or with_backward or grouping.input_shape or grouping.stack_n > 0:
        return ""
    return "-".join(["top", *(["module"] if grouping.module else []), *(["raw"] if raw else [])])


def _parts(
    looked: Iterator[tuple[Member, pa.Table | LeftOut]], groups: _Groups, left_out: list[LeftOut]
) -> Iterator[tuple[int, int | None, pa.Table]]:
    for member, found in looked:
        if isinstance(found, LeftOut):
            left_out.append(found)
        else:
            yield groups.number(member), member.rank, found


class _Groups:
    """Of traces whose rows are added up: all, or those of one rank, host or trace."""

    def __init__(self, by: str) -> None:
        self._by = by
        self._numbers: dict[Any, int] = {}
        self._origins: list[dict[str, Any]] = []

    def number(self, member: Member) -> int:
        """The group of a trace."""
        key = member.origin[self._by] if self._by else ""
        number = self._numbers.setdefault(key, len(self._origins))
        if number == len(self._origins):
            self._origins.append(member.origin)
        known = self._origins[number]
        # What the traces of a group do not share is said of none of its rows.
        self._origins[number] = {name: value if member.origin[name] == value else None for name, value in known.items()}
        return number

    def origin(self, number: int) -> dict[str, Any]:
        """Rank, host and trace of a group's rows; null what they have not in common."""
        return self._origins[number]

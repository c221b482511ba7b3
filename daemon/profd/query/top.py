"""Key averages as a question: the rows of `profctl top --json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from profd.errors import BadInput
from profd.query.average_rows import as_json, columns_of, columns_of_sums, kept_table, merged, ordered, rows_of
from profd.query.averages import Average, Grouping, averages_of_trace, sort_averages
from profd.query.captured import Captured, LeftOut, Member, where_there_is
from profd.query.part import Part, part_of, part_of_member
from profd.query.stored_sums import StoredSums, stored_sums
from profd.query.stored_view import stored_view
from profd.segments import plain_json
from profd.segments.reader import TraceReader

BY: Final = ("rank", "host", "trace")
_BY_NAME: Final = {"top-raw": stored_sums, "top": stored_view}  # `_Asked.kept_as` of whole traces -> their rows


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of one trace, and of each of a capture."""

    grouping: Grouping
    with_backward: bool
    raw: bool
    part: dict[str, Any]  # arguments of `part_of`

    @classmethod
    def of(
        cls,
        *,
        group_by: str,
        group_by_input_shape: bool,
        group_by_stack_n: int,
        sort_by: str,
        with_backward: bool,
        raw: bool,
        **part: Any,
    ) -> _Asked:
        """From the arguments of the question."""
        grouping = Grouping(group_by_input_shape, group_by_stack_n, group_by == "module")
        return cls(grouping, with_backward or sort_by == "backward_time_total", raw, part)

    @property
    def kept_as(self) -> str:
        """What rollups call these rows; empty: they are worked out of the events whenever they are asked for."""
        whole = not any(value is not None and value != "" for value in self.part.values())
        if not whole or self.with_backward or self.grouping.input_shape or self.grouping.stack_n > 0:
            return ""
        return "-".join(["top", *(["module"] if self.grouping.module else []), *(["raw"] if self.raw else [])])

    def rows(self, reader: TraceReader, chosen: Callable[..., Part]) -> list[Average]:
        """The rows of one trace, in no order. `chosen` makes its part."""
        part = chosen(reader, **self.part)
        return averages_of_trace(
            reader, raw=self.raw, grouping=self.grouping, with_backward=self.with_backward, part=part
        )

    def sums(self, reader: TraceReader) -> StoredSums | None:
        """Rows by name from the stored tree; None where it does not tell, or something else is asked."""
        of_name = _BY_NAME.get(self.kept_as)
        return None if of_name is None else of_name(reader)


def top(trace: TraceReader, *, limit: int, sort_by: str, **asked: Any) -> list[dict[str, Any]]:
    """Sorted, and cut to `limit` (0: all). `asked`: as of `_Asked`."""
    wanted = _Asked.of(sort_by=sort_by, **asked)
    name = wanted.kept_as
    kept = kept_table(trace.rollups, name) if name else None
    if kept is not None:
        rows = rows_of(kept)
    else:
        sums = wanted.sums(trace)
        rows = wanted.rows(trace, part_of) if sums is None else rows_of(columns_of_sums(sums))
        if name:
            trace.rollups.keep_table(name, lambda: columns_of(rows))
    ordered = sort_averages(rows, sort_by)
    answer = [row.as_json() for row in (ordered[:limit] if limit else ordered)]
    return [{**row, "input_shapes": plain_json.loads(row["input_shapes"] or "null")} for row in answer]


def top_of_capture(capture: Captured, *, by: str, limit: int, sort_by: str, **asked: Any) -> dict[str, Any]:
    """The rows of all traces added up, or with `by` those of each rank, host or trace. Otherwise as `top`.

    A trace without the step or thread that is asked for is named in `left_out`. BadInput where none has it.
    """
    wanted = _Asked.of(sort_by=sort_by, **asked)
    chosen = partial(part_of_member, edges=(capture.start_ns, capture.end_ns))
    name = wanted.kept_as

    def kept(member: Member) -> pa.Table | None:
        return kept_table(member.rollups, name) if name else None

    def look(member: Member) -> pa.Table:
        reader = member.open()
        sums = wanted.sums(reader)
        table = columns_of(wanted.rows(reader, chosen)) if sums is None else columns_of_sums(sums)
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

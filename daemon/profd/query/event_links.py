"""What belongs to an event elsewhere in its trace: the device work that it launches, its forward or its backward op.

Rows are looked through near the event alone: somebody waits who has clicked on it, in a trace of any size.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd.derive.autograd import AUTOGRAD_COLUMNS, find_links
from profd.events import NO_END, DeviceType, EventTable, Kind
from profd.segments.reader import TraceReader
from profd.tree.forward import engine_rows

LAUNCH_ROWS: Final = 1 << 20  # behind a call, of which two columns are read
PASS_ROWS: Final = 1 << 18  # before or behind an op, of which nine are
FIRST: Final = 16  # of the events that a call launches
Array = npt.NDArray[np.int64]


def launched(trace: TraceReader, event: EventTable) -> tuple[int, list[int], bool]:
    """How many events on devices this call launches, itself or by what it calls, and the rows of the first of them.

    And whether rows further on were not looked at.
    """
    row, end = int(event.columns["row"][0]), int(event.column("end")[0])
    if int(event.column("device_type")[0]) != DeviceType.CPU or not trace.has("linked"):
        return 0, [], False
    last = min(row + LAUNCH_ROWS, len(trace))
    table = trace.rows(np.arange(row, last), ("start", "thread", "linked"), args=False)
    inside = table.column("thread") == int(event.column("thread")[0])
    if end == NO_END:
        inside &= table.columns["row"] == row
    else:
        inside &= table.columns["start"] <= end
    linked = table.column("linked") - row
    known = (linked >= 0) & (linked < len(table))
    found = np.flatnonzero(known & inside[np.where(known, linked, 0)])
    return len(found), (found[:FIRST] + row).tolist(), last < len(trace)


def passes(trace: TraceReader, event: EventTable) -> tuple[int | None, list[int]]:
    """(the row of its forward op, rows of its backward functions), of an op of PyTorch with a number of autograd's."""
    numbered = int(event.column("sequence")[0]) != NO_END or bool(engine_rows(event)[0])  # the function inside has it
    if int(event.column("kind")[0]) != Kind.CPU_OP or not numbered:
        return None, []
    row = int(event.columns["row"][0])
    first = max(row - PASS_ROWS, 0)
    table = trace.rows(np.arange(first, min(row + PASS_ROWS, len(trace))), AUTOGRAD_COLUMNS, args=False)
    links = find_links(table, tracks=trace.tracks)
    here = row - first
    forward = int(links.forward_row[here])
    backward = np.flatnonzero((links.forward_row == here) & links.function)
    return forward + first if forward >= 0 else None, (backward[:FIRST] + first).tolist()


def links(trace: TraceReader, event: EventTable, brief: Any) -> dict[str, Any]:
    """The keys of the answer; `brief`: an event by its row."""
    count, rows, partly = launched(trace, event)
    forward, backward = passes(trace, event)
    return {
        "launched": {"events": count, "first": [brief(trace, one) for one in rows], "partly": partly and count > 0},
        "forward": None if forward is None else brief(trace, forward),
        "backward": [brief(trace, one) for one in backward],
    }

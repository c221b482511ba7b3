"""Questions to a stored trace, for notebooks and for `profctl`.

>>> from profd.query import open_trace
>>> trace = open_trace("/var/lib/profd/traces/4f0c…")
>>> trace.key_averages(group_by_input_shape=True)[0].name
'aten::addmm'
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profd.events import EventTable
from profd.query.averages import SORT_DEFAULT, Average, Grouping, averages_of_trace, sort_averages
from profd.query.summary import summarise
from profd.store.reader import TraceReader

__all__ = ["Average", "Trace", "open_trace"]


class Trace:
    """A stored trace. Times are in ns, those of events since the Unix epoch."""

    def __init__(self, reader: TraceReader) -> None:
        self.reader = reader

    def events(self, columns: list[str] | None = None) -> EventTable:
        """The events in start order, with these columns (`profd.events.COLUMNS`) or all."""
        return self.reader.read(columns)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        *,
        raw: bool = False,
        group_by_module: bool = False,
        with_backward: bool = False,
        sort_by: str = SORT_DEFAULT,
    ) -> list[Average]:
        """Rows as of torch.profiler's `key_averages()`, or with `raw` of every event as it was recorded.

        Raises BadInput for an unknown sort key, Exhausted for a trace too large for what is asked.
        """
        grouping = Grouping(group_by_input_shape, group_by_stack_n, group_by_module)
        rows = averages_of_trace(self.reader, raw=raw, grouping=grouping, with_backward=with_backward)
        return sort_averages(rows, sort_by)

    def summary(self) -> dict[str, Any]:
        """What `profctl show` says, as in docs/json.md."""
        return summarise(self.reader)


def open_trace(directory: str | Path) -> Trace:
    """Open a trace directory. Raises NotFound where there is none, BadTrace where it is damaged."""
    return Trace(TraceReader(Path(directory)))

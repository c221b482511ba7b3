"""A stored trace in a notebook: torch.profiler's methods, on any trace of any source."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from profd.errors import BadInput, NotFound
from profd.events import EventTable
from profd.model.trace_ids import is_id
from profd.query.arrow import events_arrow
from profd.query.averages import SORT_DEFAULT, Average, Grouping, averages_of_trace, sort_averages
from profd.query.gpu import gpu_of_trace
from profd.query.grouping import STACK_FRAMES_MAX
from profd.query.report import ROW_LIMIT, SOURCE_WIDTH_MAX, text_table
from profd.query.steps import steps_of_trace
from profd.query.summary import summarise
from profd.segments.meta import META_FILE
from profd.segments.reader import TraceReader

STACK_METRICS: Final = ("self_cpu_time_total", "self_device_time_total", "self_cuda_time_total", "self_xpu_time_total")
_SEPARATORS: Final = str.maketrans(" ;\t\n", "____")


class Averages(list[Average]):
    """Rows of key averages, with torch.profiler's table of them."""

    def total_average(self) -> Average:
        """All rows added up, as in torch: times of calls within calls count again, self times do not."""
        return Average(
            name="total",
            device_type="",
            count=sum(row.count for row in self),
            cpu_time_total_ns=sum(row.cpu_time_total_ns for row in self),
            self_cpu_time_total_ns=sum(row.self_cpu_time_total_ns for row in self),
            device_time_total_ns=sum(row.device_time_total_ns for row in self),
            self_device_time_total_ns=sum(row.self_device_time_total_ns for row in self),
            flops=_known_sum(row.flops for row in self),
            cpu_memory_usage=_known_sum(row.cpu_memory_usage for row in self),
            self_cpu_memory_usage=_known_sum(row.self_cpu_memory_usage for row in self),
            device_memory_usage=_known_sum(row.device_memory_usage for row in self),
            self_device_memory_usage=_known_sum(row.self_device_memory_usage for row in self),
        )

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = ROW_LIMIT,
        max_src_column_width: int | None = SOURCE_WIDTH_MAX,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """The rows as torch.profiler prints them; times with their units.

        `sort_by` is a name of torch's like "self_cuda_time_total" (largest first), None keeps the order.
        `row_limit` -1 means all. `max_src_column_width` cuts stack frames, None does not. `header` stands
        above. `top_level_events_only` leaves out what was called by another event when it first ran.
        BadInput for an unknown `sort_by`.
        """
        return text_table(self, sort_by, row_limit, max_src_column_width, header, top_level_events_only)


def _known_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


class Trace:
    """A stored trace. Times are in ns, those of events since the Unix epoch.

    All methods raise BadTrace where a file of the trace is damaged, NotFound where it was removed
    meanwhile, and those that need all of it at once Exhausted above `QUERY_ROWS_MAX` events.
    """

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
    ) -> Averages:
        """Rows as of torch.profiler's `key_averages()`, or with `raw` of every event as it was recorded.

        Functions that call themselves are counted as in cProfile: once in totals. BadInput for an unknown sort key.
        """
        grouping = Grouping(group_by_input_shape, group_by_stack_n, group_by_module)
        rows = averages_of_trace(self.reader, raw=raw, grouping=grouping, with_backward=with_backward)
        return Averages(sort_averages(rows, sort_by))

    def total_average(self) -> Average:
        """All key averages added up; see `Averages.total_average`."""
        return self.key_averages().total_average()

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = ROW_LIMIT,
        max_src_column_width: int | None = SOURCE_WIDTH_MAX,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """The table of key averages; see `Averages.table`."""
        rows = self.key_averages()
        return rows.table(sort_by, row_limit, max_src_column_width, header, top_level_events_only)

    def steps(self) -> dict[str, Any]:
        """The training steps one by one, as `profctl steps --json` (docs/json.md)."""
        return steps_of_trace(self.reader)

    def gpu(self) -> dict[str, Any]:
        """The work of the devices, as `profctl gpu --json` (docs/json.md)."""
        return gpu_of_trace(self.reader)

    def summary(self) -> dict[str, Any]:
        """The answer of `profctl show`, as in docs/json.md."""
        return summarise(self.reader)

    def to_arrow(self) -> pa.Table:
        """The events as an Arrow table, one row each in start order: the `events` of `profctl sql`."""
        return events_arrow(self.reader)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write the trace as Chrome JSON, which Perfetto reads too; compressed where `path` ends in `.gz`."""
        from profd.export import chrome  # here: what writes traces asks them first, and so imports us

        path = Path(path)
        with path.open("wb") as file:
            if path.suffix != ".gz":
                chrome.write(self.reader, file, None, _silent)
                return
            with gzip.open(file, "wb", compresslevel=3) as packed:
                chrome.write(self.reader, cast(BinaryIO, packed), None, _silent)

    def export_stacks(self, path: str | Path, metric: str = SORT_DEFAULT) -> None:
        """Write the stacks of calls, outermost frame first, each with its sum in whole us: for flamegraph.pl.

        `metric` is one of STACK_METRICS, else BadInput. As in torch the call itself is no frame; for
        stacks down to the call see `profctl export -f folded`.
        """
        if metric not in STACK_METRICS:
            raise BadInput(f"there is no metric {metric!r} of stacks; known are {', '.join(STACK_METRICS)}")
        on_cpu = metric == "self_cpu_time_total"
        sums: dict[str, int] = {}
        for row in self.key_averages(group_by_stack_n=STACK_FRAMES_MAX):
            if row.stack:
                stack = ";".join(frame.translate(_SEPARATORS) for frame in reversed(row.stack))
                own = row.self_cpu_time_total_ns if on_cpu else row.self_device_time_total_ns
                sums[stack] = sums.get(stack, 0) + own
        with Path(path).open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(f"{stack} {ns // 1000}\n" for stack, ns in sums.items() if ns >= 1000)


def _silent(what: str, share: float) -> None:
    """Nobody watches the progress in a notebook."""


def open_trace(path: str | Path, trace: str = "") -> Trace:
    """A trace by its own directory, or by a store's and an id (a prefix will do; empty: the latest).

    NotFound where there is none, BadInput where a prefix fits several, BadTrace where it is damaged.
    """
    path = Path(path)
    if not trace and (path / META_FILE).exists():
        return Trace(TraceReader(path))
    folder = path / "traces"
    if not folder.is_dir():
        return Trace(TraceReader(path))  # which says that it is none
    found = sorted(name for name in os.listdir(folder) if is_id(name) and name.startswith(trace))
    if not found:
        raise NotFound(f"the store {path} has no trace {trace!r}; `profctl --store {path} list` shows them")
    if trace and len(found) > 1:
        raise BadInput(f"{trace!r} is the beginning of {len(found)} traces: give more of it")
    return Trace(TraceReader(folder / found[-1]))  # ids sort by age

"""Spans, as both stack formats draw them: rows with a duration, cut to the window, and the tracks they lie on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profd.events import NO_END, NO_ROW, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.whole import check_size
from profd.segments.reader import TraceReader, Window

SPAN_COLUMNS = ("name", "kind", *rules.ASYNC_COLUMNS, "start", "end", "thread", "process", "device_type", "linked")


@dataclass(frozen=True, slots=True)
class Spans:
    """Arrays of equal length in start order; times in Unix ns, cut to the window."""

    row: Array  # number in the trace
    name: Array
    names: list[str]  # C++ symbols as they were written
    start: Array
    end: Array
    thread: Array
    on_cpu: Array
    linked: Array  # row of the launch of a device row, NO_ROW where there is none


def read_spans(reader: TraceReader, window: Window | None, min_duration_ns: int = 0) -> Spans:
    """The spans of a window, or of the whole trace, that last so long. Exhausted where a worker cannot hold them."""
    if window is None:
        check_size(len(reader))
    table = reader.read(SPAN_COLUMNS, window=window, args=False)
    kinds = table.columns["kind"] if len(table) else np.zeros(0, dtype=np.uint8)
    start, end = table.columns["start"], table.column("end")
    drawn = rules.is_work(kinds) & ~rules.is_kind(kinds, Kind.OVERHEAD) & ~rules.is_async(table)
    drawn &= (end != NO_END) & (end >= start) & (table.column("thread") != NO_ROW)
    if min_duration_ns:
        drawn &= end - start >= min_duration_ns
    rows = np.flatnonzero(drawn)
    check_size(len(rows))
    low, high = window if window is not None else (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))
    return Spans(
        row=_numbers(table)[rows],
        name=table.column("name")[rows],
        names=rules.demangled(rules.names_of(table)),
        start=np.clip(start[rows], low, high),
        end=np.clip(end[rows], low, high),
        thread=table.column("thread")[rows],
        on_cpu=rules.is_cpu(table.column("device_type"))[rows],
        linked=table.column("linked")[rows],
    )


def _numbers(table: EventTable) -> Array:
    numbers = table.columns.get("row")
    return np.arange(len(table)) + table.first_row if numbers is None else numbers


def track_titles(reader: TraceReader) -> list[str]:
    """A title for each thread track: its process and thread by name, or by id."""
    processes = [_title(track) for track in reader.tracks.processes]
    titles = []
    for track in reader.tracks.threads:
        process = track.get("process", NO_ROW)
        owner = processes[process] if isinstance(process, int) and 0 <= process < len(processes) else ""
        titles.append(f"{owner} / {_title(track)}" if owner else _title(track))
    return titles


def _title(track: dict[str, object]) -> str:
    name, number = track.get("name"), track.get("id")
    return f"{name} {number}" if name else str(number)

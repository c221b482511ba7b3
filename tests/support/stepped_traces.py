"""Traces of training steps for detectors, with times in us that are easy to add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from profd.answers.facts import Facts
from profd.events import Kind, Tracks
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

US = 1000
STEP_US = 1000
MAIN, BACKWARD, DEVICE = 0, 1, 9
MEASURED = 5  # steps of `training`, whose first one is left out
SAMPLED = Tracks(
    threads=[
        {"id": 7, "process": 0, "name": "MainThread"},
        {"id": "samples of 7", "process": 0, "name": "MainThread (samples)"},
    ]
)
"""The thread of the steps, and what samples saw of it (track 1)."""
Rows = Callable[[int], Iterable[Event]]  # of the step of this number, which begins at number * STEP_US


def call(name: str, at: float, lasts: float, kind: Kind = Kind.CPU_OP, thread: int = MAIN, **fields: Any) -> Event:
    """One event; times in us."""
    return Event(name, round(at * US), round((at + lasts) * US), kind, thread, fields=fields)


def kernel(at: float, lasts: float, launch: float | None = None, name: str = "gemm", **fields: Any) -> list[Event]:
    """A kernel, and the call that launched it at another time."""
    work = call(name, at, lasts, Kind.KERNEL, DEVICE, **fields)
    return [work] if launch is None else [work, launched(work, launch)]


def launched(work: Event, launch: float) -> Event:
    """The call that launched it: `stored` links the two."""
    found = call("cudaLaunchKernel", launch, 1, Kind.RUNTIME)
    work.fields["linked"] = found
    return found


def training(rows: Rows, steps: int = 6, lasts: Callable[[int], float] = lambda number: STEP_US) -> list[Event]:
    """So many steps, one a millisecond; `lasts` may end one early."""
    events = []
    for number in range(steps):
        events.append(call(f"ProfilerStep#{number}", number * STEP_US, lasts(number), Kind.USER_ANNOTATION))
        events += rows(number)
    return events


def stored(events: list[Event], path: Path, rows: int = 1 << 19, **meta: Any) -> TraceReader:
    """As a trace; `linked` and `parent` of events are other events."""
    ordered = sorted(events, key=lambda event: event.start)
    place = {id(event): row for row, event in enumerate(ordered)}
    for event in ordered:
        for name in ("linked", "parent"):
            if isinstance(event.fields.get(name), Event):
                event.fields[name] = place[id(event.fields[name])]
    return TraceReader(store(table_of(ordered), path / "t", rows=rows, **meta))


def facts(events: list[Event], path: Path, rows: int = 1 << 19, **meta: Any) -> Facts:
    """What detectors look at."""
    return Facts(stored(events, path, rows, **meta))

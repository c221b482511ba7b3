"""Derived lines: their kinds, and their events as columns. Times in ps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np

from profd.derive.timeline.groups import NO_GROUP
from profd.events.table import Array


class What(StrEnum):
    """The kinds of derived lines."""

    STEPS = "steps"
    LAUNCHES = "launches"
    SCOPES = "scopes"
    OPS = "ops"
    MODULES = "modules"
    XLA_OPS = "xla-ops"
    GRAPHS = "graphs"
    SOURCES = "sources"


NAMES: Final = {
    What.STEPS: "Steps",
    What.LAUNCHES: "Launch Stats",
    What.SCOPES: "Framework Name Scope",
    What.OPS: "Framework Ops",
    What.MODULES: "XLA Modules",
    What.XLA_OPS: "XLA Ops",
    What.GRAPHS: "Command Buffers",
    What.SOURCES: "Source code",
}


@dataclass(slots=True)
class DerivedEvent:
    """A span of a derived line. `long_name` tells apart what is shown by the same name."""

    name: str
    start: int
    end: int
    group: int | None = None
    long_name: str = ""
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LineEvents:
    """The events of a line as columns, by start, of those that start together the longest first.

    `label` says which of `labels` (name shown, long name) an event has, `args` what some of them have besides.
    """

    start: Array  # int64
    end: Array
    group: Array  # NO_GROUP where it has none
    label: Array
    labels: list[tuple[str, str]]
    args: dict[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[DerivedEvent]) -> LineEvents:
        """Events one by one, in any order."""
        given = sorted(events, key=lambda event: (event.start, -event.end))
        labels: dict[tuple[str, str], int] = {}
        label = [labels.setdefault((event.name, event.long_name), len(labels)) for event in given]
        group = [NO_GROUP if event.group is None else event.group for event in given]
        columns = ([event.start for event in given], [event.end for event in given], group, label)
        start, end, within, shown = (np.array(column, dtype=np.int64) for column in columns)
        args = {at: event.args for at, event in enumerate(given) if event.args}
        return cls(start, end, within, shown, list(labels), args)

    def in_order(self) -> LineEvents:
        """The same, sorted."""
        if len(self) < 2:
            return self
        order = np.lexsort((-self.end, self.start))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        args = {int(place[at]): own for at, own in self.args.items()}
        return LineEvents(self.start[order], self.end[order], self.group[order], self.label[order], self.labels, args)

    def __len__(self) -> int:
        return len(self.start)

    def rows(self) -> Iterator[tuple[int, int, int | None, tuple[str, str], dict[str, Any]]]:
        """(start, end, group, (name, long name), args) of each event."""
        columns = (column.tolist() for column in (self.start, self.end, self.group, self.label))
        for at, (start, end, group, label) in enumerate(zip(*columns, strict=True)):
            within = None if group == NO_GROUP else group
            yield start, end, within, self.labels[label], self.args.get(at, {})

    def __iter__(self) -> Iterator[DerivedEvent]:
        for start, end, group, (name, long_name), args in self.rows():
            yield DerivedEvent(name, start, end, group, long_name, args)


@dataclass(frozen=True, slots=True)
class DerivedLine:
    """A line and where it comes from."""

    plane: str
    what: What
    name: str
    stream: int | None  # id of the line it was derived from, None where from all of the plane
    row: int  # where XProf shows it
    events: LineEvents

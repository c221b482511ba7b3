"""The tree of a trace, segment by segment.

Stack replay by end time on each thread (torch's `build_tree`): a row's parent
is the row that is open on its thread when it starts. Where we say more than it:

- a frame that ends when another starts is closed (torch: still open), so that
  neighbours in traces of whole microseconds stay siblings;
- of rows that start together the longer encloses the shorter; of equal
  intervals the earlier row encloses the later;
- zero-length rows and instants are leaves;
- a row without an end lasts as long as its parent; an end before the start
  counts as the start;
- a backward op on a thread where nothing is open is a child of what is open on
  the thread of its forward op, whose self time stays its own;
- partial overlap: the row is a child of the frame in which it starts, closes
  with it for the tree's purposes and takes from its self time what lies within;
  counted as `partial_overlap`.

Device rows do not nest by time. Their parent and `linked` are the runtime or
driver call with their correlation id: the latest before them, or, where clocks
are skewed, the first after them. Flows link where there is no correlation id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from profd import _engine
from profd.collate.collator import SortedFlows
from profd.collate.runs import FILE_COLUMN
from profd.events import NO_ROW, Dictionary, EventTable, Flows, Tracks
from profd.limits import TRACKS_MAX
from profd.tree.flows import FlowFeed, FlowLinks
from profd.tree.forward import forward_tracks
from profd.tree.roles import DEVICE, LAUNCH, MUST_LAUNCH, MUST_LINK, Roles, lacks_correlation

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """New values of some columns of some rows."""

    rows: Array  # int64, ascending
    columns: dict[str, Array]


@dataclass(slots=True)
class Outcome:
    """What is known only when every segment has been seen."""

    patches: list[Patch] = field(default_factory=list)
    anomalies: dict[str, int] = field(default_factory=dict)  # only those that occurred


class TreePass:
    """Feed it the segments of a trace in order, then `finish`.

    Flow records are taken from `flows` as the rows they may bind to come along,
    and given to `bound` in time order once their `row` is known.
    """

    def __init__(
        self,
        tracks: Tracks,
        dictionaries: dict[str, Dictionary],
        flows: Iterator[SortedFlows],
        bound: Callable[[Flows], None],
    ) -> None:
        self.launches = 0  # calls that launch something by their name
        self._roles = Roles(dictionaries.setdefault("name", Dictionary()))
        self._bound = bound
        categories = dictionaries.setdefault("cat", Dictionary())
        self._tracks = tracks
        self._same = same_threads(tracks)
        self._flows = FlowFeed(flows, categories, self._one_of_each)
        self._tree = _engine.TreeBuilder(len(tracks.threads), threads_max=TRACKS_MAX)
        self._links = _engine.LinkBuilder()
        self._flow_links = FlowLinks()
        self._unbound = 0

    def feed(self, table: EventTable) -> None:
        """Set `parent`, `depth`, `self_time` and `linked`; takes away the file column."""
        self._grow()
        role, seen = self._roles.of(table)
        file = table.columns.pop(FILE_COLUMN, None)
        start = table.columns["start"]
        self._flows.supply(self._tree, int(start[-1]))
        thread = self._one_of_each(table.column("thread"))
        forward = forward_tracks(table, self._tracks)
        forward = None if forward is None else self._one_of_each(forward)
        parent, depth, self_time = self._tree.feed(start, table.column("end"), thread, role, forward)
        table.columns |= {"parent": parent, "depth": depth, "self_time": self_time}
        if seen & (LAUNCH | DEVICE):
            self._link(table, role, np.zeros(len(table), dtype=np.int32) if file is None else file)
        else:
            self._links.skip(len(table))
        self._collect_flows()

    def _grow(self) -> None:
        """Tracks may have come since the last segment."""
        if self._tree.threads != len(self._tracks.threads):
            self._tree.grow(len(self._tracks.threads), threads_max=TRACKS_MAX)
            self._same = same_threads(self._tracks)

    def _one_of_each(self, thread: Array) -> Array:
        """Tracks of threads, one for those that are the same."""
        return thread if self._same is None else self._same[thread]

    def _link(self, table: EventTable, role: Array, file: Array) -> None:
        """Calls and what they launched."""
        self.launches += int(np.count_nonzero(role & MUST_LAUNCH))
        columns = table.columns
        linked, columns["depth"] = self._links.feed(table.column("correlation"), file, role, columns["depth"])
        columns["parent"] = np.where(linked == NO_ROW, columns["parent"], linked)
        columns["linked"] = linked
        alone = np.flatnonzero(role & MUST_LINK)
        if len(alone):
            alone = alone[lacks_correlation(table)[alone]]
        self._flow_links.add_rows(alone + table.first_row)

    def _collect_flows(self) -> None:
        for flows, depth in self._flows.collect(self._tree):
            self._flow_links.add(flows, depth, self._flows.wants(flows))
            self._unbound += int(np.count_nonzero(flows.flows.row == NO_ROW))
            self._bound(flows.flows)

    def finish(self) -> Outcome:
        """Bind the flow records that are left and say what rows of earlier segments must become."""
        for _ in self._flows.supply_rest(self._tree):
            self._collect_flows()
        late_row, late_self = self._tree.finish()
        self._collect_flows()
        link_row, linked, depth = self._links.finish()
        flow_row, launch, launch_depth = self._flow_links.links()
        patches = [
            *_patches(late_row, {"self_time": late_self}),
            *_patches(link_row, {"parent": linked, "linked": linked, "depth": depth}),
            *_patches(flow_row, {"parent": launch, "linked": launch, "depth": launch_depth + 1}),
        ]
        anomalies = {
            "partial_overlap": self._tree.partial_overlap,
            "no_end": self._tree.no_end,
            "device_without_launch": self._links.device_without_launch - len(flow_row),
            "launch_without_device": self._links.launch_without_device,
            "correlation_reused": self._links.correlation_reused,
            "launches_forgotten": self._links.forgotten,
            "unbound_flow": self._unbound,
            "several_flows": self._flow_links.several,
            **self._flow_links.anomalies(),
        }
        return Outcome(patches, {name: count for name, count in anomalies.items() if count})


def same_threads(tracks: Tracks) -> Array | None:
    """For each thread track the first one of the same process with the same text as its id (int32); None: itself.

    Kineto of 2021 wrote the tids of some rows as strings and those of flows and
    instants as numbers; to a viewer, whose keys are strings, both are one thread.
    An array has one entry more, -1, for rows without a thread.
    """
    first: dict[tuple[int, str], int] = {}
    numbers = [
        first.setdefault((track["process"], str(track["id"])), number) for number, track in enumerate(tracks.threads)
    ]
    if len(first) == len(numbers):
        return None
    return np.array([*numbers, NO_ROW], dtype=np.int32)


def _patches(rows: Array, columns: dict[str, Array]) -> Iterator[Patch]:
    if len(rows):
        order = _engine.argsort(rows)
        yield Patch(rows[order], {name: values[order] for name, values in columns.items()})


def apply(patch: Patch, table: EventTable) -> Patch | None:
    """Write what concerns the rows of this table into it; the rest, if any, is returned."""
    split = int(np.searchsorted(patch.rows, table.first_row))
    inside = patch.rows[split:] - table.first_row
    for name, values in patch.columns.items():
        table.columns[name][inside] = values[split:]
    if split == 0:
        return None
    return Patch(patch.rows[:split], {name: values[:split] for name, values in patch.columns.items()})

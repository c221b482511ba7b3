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
- partial overlap: the row is a child of the frame in which it starts, closes
  with it for the tree's purposes and takes from its self time what lies within;
  counted as `partial_overlap`.

Device rows do not nest by time. Their parent and `linked` are the runtime or
driver call with their correlation id: the latest before them, or, where clocks
are skewed, the first after them. Flows link where there is no correlation id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd import _engine
from profd.collate.collator import SortedFlows
from profd.collate.runs import FILE_COLUMN
from profd.events import NO_ROW, Dictionary, EventTable
from profd.limits import TRACKS_MAX
from profd.tree.roles import MUST_LAUNCH, MUST_LINK, Roles, lacks_correlation

Array = npt.NDArray[Any]

_WANTS_OP: Final = 1
_WANTS_LINK: Final = 2
# What a flow of this category joins; "async" is Kineto's of 2021.
_WANTS: Final = {
    "fwdbwd": _WANTS_OP,
    "ac2g": _WANTS_LINK,
    "async_cpu_to_gpu": _WANTS_LINK,
    "async": _WANTS_LINK,
}


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
    """Feed it the segments of a trace in order; then `finish`, which also binds the flows it was given."""

    def __init__(self, threads: int, dictionaries: dict[str, Dictionary], flows: SortedFlows) -> None:
        self._roles = Roles(dictionaries.setdefault("name", Dictionary()))
        self._flows = flows
        categories = dictionaries.setdefault("cat", Dictionary()).values
        wants = np.array([_WANTS.get(category, 0) for category in categories] + [0], dtype=np.uint8)
        self._want: Array = wants[flows.flows.category]
        self._tree = _engine.TreeBuilder(
            threads, flows.flows.thread, flows.flows.time, self._want, threads_max=TRACKS_MAX
        )
        self._links = _engine.LinkBuilder()
        self.launches = 0  # calls that launch something by their name
        self._unlinked: list[tuple[Array, Array]] = []  # (rows, file) of device rows without correlation

    def feed(self, table: EventTable) -> None:
        """Set `parent`, `depth`, `self_time` and `linked`; takes away the file column."""
        rows = len(table)
        role = self._roles.of(table)
        self.launches += int(np.count_nonzero(role & MUST_LAUNCH))
        file = table.columns.pop(FILE_COLUMN, None)
        if file is None:
            file = np.zeros(rows, dtype=np.int32)
        parent, depth, self_time = self._tree.feed(
            table.columns["start"], table.column("end"), table.column("thread"), role
        )
        linked, depth = self._links.feed(table.column("correlation"), file, role, depth)
        table.columns["parent"] = np.where(linked == NO_ROW, parent, linked)
        table.columns["depth"] = depth
        table.columns["self_time"] = self_time
        table.columns["linked"] = linked
        alone = np.flatnonzero(((role & MUST_LINK) != 0) & lacks_correlation(table))
        if len(alone):
            self._unlinked.append((alone + table.first_row, file[alone]))

    def finish(self) -> Outcome:
        """Bind the flows (their `row` is set) and say what rows of earlier segments must become."""
        late_row, late_self, flow_row, flow_depth = self._tree.finish()
        self._flows.flows.row[:] = flow_row
        link_row, linked, depth = self._links.finish()
        patches = list(_patches(late_row, {"self_time": late_self}))
        patches += _patches(link_row, {"parent": linked, "linked": linked, "depth": depth})
        by_flow = self._link_by_flow(flow_depth)
        patches += by_flow
        anomalies = {
            "partial_overlap": self._tree.partial_overlap,
            "no_end": self._tree.no_end,
            "device_without_launch": self._links.device_without_launch - sum(len(patch.rows) for patch in by_flow),
            "launch_without_device": self._links.launch_without_device,
            "correlation_reused": self._links.correlation_reused,
            "launches_forgotten": self._links.forgotten,
            "unbound_flow": int((flow_row == NO_ROW).sum()),
        }
        return Outcome(patches, {name: count for name, count in anomalies.items() if count})

    def _link_by_flow(self, flow_depth: Array) -> list[Patch]:
        """Device rows without a correlation id, by the flow that ends at them."""
        flows = self._flows.flows
        bound = np.flatnonzero((self._want == _WANTS_LINK) & (flows.row != NO_ROW))
        if not self._unlinked or not len(bound):
            return []
        key = (self._flows.file[bound].astype(np.int64) << 32) | flows.id[bound]
        begins = flows.phase[bound] == ord("s")
        # The first start of an id counts, as in Kineto; records are in time order.
        ids, first = np.unique(key[begins], return_index=True)
        launch = bound[begins][first]
        ends = ~begins & np.isin(flows.row[bound], np.concatenate([rows for rows, _ in self._unlinked]))
        if not len(ids) or not ends.any():
            return []
        at = np.minimum(np.searchsorted(ids, key[ends]), len(ids) - 1)
        found = ids[at] == key[ends]
        row, first_flow = np.unique(flows.row[bound[ends]][found], return_index=True)
        cause = launch[at[found][first_flow]]
        columns = {"parent": flows.row[cause], "linked": flows.row[cause], "depth": flow_depth[cause] + 1}
        return list(_patches(row, columns))


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

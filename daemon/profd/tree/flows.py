"""Flow records on their way through the tree pass: supplied ahead of the rows, collected bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd import _engine
from profd.collate.collator import SortedFlows
from profd.events import NO_ROW, Dictionary

Array = npt.NDArray[Any]

WANTS_OP: Final = 1
WANTS_LINK: Final = 2
# What a flow of this category joins; "async" is Kineto's of 2021.
_WANTS: Final = {
    "fwdbwd": WANTS_OP,
    "ac2g": WANTS_LINK,
    "async_cpu_to_gpu": WANTS_LINK,
    "async": WANTS_LINK,
}


class FlowFeed:
    """Hands flow records to the native tree as far as they are needed, and takes them back bound."""

    def __init__(
        self, slices: Iterator[SortedFlows], categories: Dictionary, one_of_each: Callable[[Array], Array]
    ) -> None:
        self._slices = slices
        self._one_of_each = one_of_each  # of the tracks that are one thread
        self._wants = np.array([_WANTS.get(name, 0) for name in categories.values] + [0], dtype=np.uint8)
        self._handed: deque[SortedFlows] = deque()  # to the native tree, not yet bound
        self._until = np.iinfo(np.int64).min  # time of the last record handed over
        self._more = True

    def wants(self, flows: SortedFlows) -> Array:
        """uint8 per record: what it joins."""
        wants: Array = self._wants[flows.flows.category]
        return wants

    def supply(self, tree: _engine.TreeBuilder, until: int) -> None:
        """Hand over every record up to this time, and some after it."""
        while self._until <= until and self._supply_slice(tree):
            pass

    def supply_rest(self, tree: _engine.TreeBuilder) -> Iterator[None]:
        """After the last row: hand over the rest, slice by slice; collect after each."""
        while self._supply_slice(tree):
            tree.advance(self._until)
            yield

    def _supply_slice(self, tree: _engine.TreeBuilder) -> bool:
        slice_ = next(self._slices, None) if self._more else None
        if slice_ is None:
            self._more = False
            return False
        thread = self._one_of_each(slice_.flows.thread)
        tree.add_flows(thread, slice_.flows.time, self.wants(slice_))
        self._handed.append(slice_)
        self._until = int(slice_.flows.time[-1])
        return True

    def collect(self, tree: _engine.TreeBuilder) -> Iterator[tuple[SortedFlows, Array]]:
        """Yield the records that are bound now, in time order, and the depths of their rows."""
        row, depth = tree.take_flows()
        while len(row):
            bound, rest = self._handed.popleft().cut(len(row))
            if len(rest):
                self._handed.appendleft(rest)
            count = len(bound)
            bound.flows.row[:] = row[:count]
            yield bound, depth[:count]
            row, depth = row[count:], depth[count:]


class FlowLinks:
    """Launches of device rows that have no correlation id, by the flow that ends at them.

    The first start of an id counts, as in Kineto. It must be at a row of the host:
    device rows that cause each other could do so in a circle.
    """

    def __init__(self) -> None:
        self._begins: list[tuple[Array, Array, Array]] = []  # key, row, depth
        self._ends: list[tuple[Array, Array]] = []  # key, row
        self._keys: tuple[list[Array], list[Array]] = ([], [])  # of all that join launches: starts, ends
        self._without: list[Array] = []  # device rows without a correlation id
        self.several = 0  # flows that end, after the first, at such a row; known with `links`

    def add_rows(self, rows: Array) -> None:
        """Device rows that look for their launch; before the records that end at them."""
        if len(rows):
            self._without.append(rows)

    def add(self, bound: SortedFlows, depth: Array, wants: Array) -> None:
        """Some bound records, in time order."""
        flows = bound.flows
        starts = flows.phase == ord("s")
        for keys, some in zip(self._keys, (starts, ~starts), strict=True):
            keys.append(_key(bound, np.flatnonzero((wants == WANTS_LINK) & some)))
        fits = (wants == WANTS_LINK) & (flows.row != NO_ROW)
        begins = np.flatnonzero(fits & starts & (depth >= 0))
        self._begins.append((_key(bound, begins), flows.row[begins], depth[begins]))
        if self._without:
            ends = np.flatnonzero(fits & ~starts)
            self._ends.append((_key(bound, ends), flows.row[ends]))

    def links(self) -> tuple[Array, Array, Array]:
        """(device row ascending, launch row, launch depth)."""
        none = np.empty(0, dtype=np.int64)
        if not self._ends:
            return none, none, none.astype(np.int32)
        key, launch, depth = (np.concatenate(parts) for parts in zip(*self._begins, strict=True))
        ids, first = np.unique(key, return_index=True)
        end_key, row = (np.concatenate(parts) for parts in zip(*self._ends, strict=True))
        fits = np.isin(row, np.concatenate(self._without)) & np.isin(end_key, ids)
        row, first_end = np.unique(row[fits], return_index=True)
        self.several = int(np.count_nonzero(fits)) - len(row)
        cause = first[np.searchsorted(ids, end_key[fits][first_end])]
        return row, launch[cause], depth[cause]

    def anomalies(self) -> dict[str, int]:
        """Starts of an id after its first, and ids with a start or an end alone, of flows that join launches."""
        starts = sum(map(len, self._keys[0]))
        begun, ended = map(_distinct, self._keys)
        both = np.count_nonzero(np.diff(np.sort(np.concatenate([begun, ended]), kind="stable")) == 0)
        half = len(begun) + len(ended) - 2 * int(both)
        return {"duplicate_flow_start": starts - len(begun), "half_flow": half}


_NONE: Final = np.empty(0, dtype=np.int64)


def _distinct(keys: list[Array]) -> Array:
    """Each of the keys once, ascending. np.unique takes eighty times as long where all are different."""
    ordered = np.sort(np.concatenate([*keys, _NONE]))
    found: Array = ordered[np.diff(ordered, prepend=-1) != 0]
    return found


def _key(bound: SortedFlows, at: Array) -> Array:
    key: Array = (bound.file[at].astype(np.int64) << 32) | bound.flows.id[at]
    return key

"""The call tree with all calls of one path together: `profctl tree --merged` (docs/json.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.modules import MODULE_FRAME
from profd.events import NO_END, NO_ROW, DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.limits import MERGED_PATHS_MAX
from profd.query import rules
from profd.query.hottest import hottest
from profd.query.own import own_threads
from profd.query.part import Part, of_job, part_of, read_part
from profd.query.view import durations
from profd.segments.reader import TraceReader
from profd.tree.build import same_threads

MERGED_COLUMNS: Final = (
    *("name", "kind", *rules.ASYNC_COLUMNS),
    *("start", "end", "thread", "device_type", "parent"),
)
_KINDS: Final = [kind.label for kind in Kind]
_DEVICES: Final = {int(device): device.label for device in DeviceType}


def words_of(name: str, kind: int, device_type: int) -> dict[str, str]:
    """What a path is, as docs/json.md has it. A damaged file may name any kind and type."""
    return {
        "name": name,
        "kind": _KINDS[min(kind, len(_KINDS) - 1)],
        "device_type": _DEVICES.get(device_type, "other"),
    }


CALLS, MODULES, OPERATORS, SAMPLES = OF = ("calls", "modules", "operators", "samples")


def merged_tree(trace: TraceReader, *, limit: int, of: str = CALLS, **part: Any) -> dict[str, Any]:
    """The paths with most time, at most `limit` of them (0, or more than MERGED_PATHS_MAX: that many).

    `of`: one of OF; others than CALLS leave calls out, and what these called stands below the nearest that is kept.
    `part`: arguments of `part_of`; without a thread, those of profd are left out. Exhausted where the part does not
    fit into a worker.
    """
    chosen = of_job(trace, part_of(trace, **part))
    table, threads = calls_of(trace, chosen, of)
    window = chosen.lasts_ns(trace)
    paths = _paths(table, threads, until_of(trace, chosen))
    shown = hottest(paths.above, paths.weight, min(limit or MERGED_PATHS_MAX, MERGED_PATHS_MAX))
    return {
        "window_ns": window,
        "calls": len(table),
        "paths": len(paths),
        "left_out": len(paths) - len(shown),
        "own_threads": own_threads(trace.meta, chosen.own),
        "nodes": [paths.as_json(number, depth, window) for number, depth in shown],
    }


def calls_of(reader: TraceReader, part: Part, of: str = CALLS) -> tuple[EventTable, Array]:
    """(the calls and device work of a part, the thread of each): no marks, and nothing that lies beside the stacks."""
    table = read_part(reader, part, MERGED_COLUMNS)
    kinds = table.column("kind")
    apart = rules.is_kind(kinds, Kind.GPU_USER_ANNOTATION) | rules.is_async(table)
    wanted = rules.is_work(kinds) & ~apart
    parent = table.column("parent")
    if of != CALLS:
        wanted &= _is_of(table, of)
    rows = np.flatnonzero(wanted)
    place = np.full(len(table) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
    place[rows] = np.arange(len(rows))
    columns = {name: table.column(name)[rows] for name in ("name", "kind", "start", "end", "thread", "device_type")}
    columns["parent"] = place[_around(parent, wanted, rows) if of != CALLS else parent[rows]]
    thread, same = columns["thread"], same_threads(reader.tracks)
    return EventTable(columns, table.dictionaries), thread if same is None else same[thread]


def _around(parent: Array, wanted: Array, rows: Array) -> Array:
    return _engine.nearest_above(np.ascontiguousarray(parent), wanted.view(np.uint8), rows)


def _is_of(table: EventTable, of: str) -> Array:
    """Which rows are modules, operators or samples. Work of devices stands below the one that launched it."""
    kinds = table.column("kind")
    work = ~rules.is_cpu(table.column("device_type"))
    if of == SAMPLES:
        return rules.is_kind(kinds, Kind.SAMPLE)
    if of == OPERATORS:
        return rules.is_kind(kinds, Kind.CPU_OP) | work
    module = rules.Named(lambda name: name.startswith(MODULE_FRAME)).of(table)
    found: Array = rules.is_kind(kinds, Kind.PYTHON_FUNCTION) & module | work
    return found


def until_of(reader: TraceReader, part: Part) -> int:
    """When what has no end of its own ends: with the part."""
    end = reader.meta.end_ns or 0
    return end if part.window is None else min(end, part.window[1])


@dataclass(frozen=True, slots=True)
class _PathTimes:
    """A column for each number of a path; ns."""

    above: Array  # path of the caller, or NO_ROW
    name: Array  # index of `names`, or NO_CODE
    names: list[str]
    kind: Array
    device_type: Array
    count: Array
    total: Array  # of outermost calls
    own: Array
    device: Array  # work on devices that it or what is below it launched
    recursive: Array  # bool: some call of it lies within another one

    def __len__(self) -> int:
        return len(self.above)

    @property
    def weight(self) -> Array:
        """The measure by which one is hotter than another."""
        return np.maximum(self.total, self.device)

    def as_json(self, number: int, depth: int, window: int) -> dict[str, Any]:
        """A node of docs/json.md."""
        total = int(self.total[number])
        return {
            "depth": depth,
            **words_of(
                self.names[code] if (code := int(self.name[number])) >= 0 else "",
                int(self.kind[number]),
                int(self.device_type[number]),
            ),
            "count": int(self.count[number]),
            "total_ns": total,
            "self_ns": int(self.own[number]),
            "device_total_ns": int(self.device[number]),
            "share": round(total / window, 6) if window else None,
            "recursive": bool(self.recursive[number]),
        }


def _paths(table: EventTable, threads: Array, until: int) -> _PathTimes:
    names, code = rules.shown_names(rules.names_of(table), table.column("name"))
    kind, device_type = table.column("kind"), table.column("device_type")
    parent = np.ascontiguousarray(table.column("parent"))
    key, first = _engine.group_rows([column.astype(np.int64) for column in (code, kind, device_type)])
    folds = rules.is_kind(kind[first], *rules.FUNCTIONS)
    path, above, example, outermost = _engine.call_paths(key.astype(np.int32), folds.view(np.uint8), parent)
    lasting, own = times_of(table, threads, parent, until)
    on_device = ~rules.is_cpu(device_type)

    def summed(values: Array) -> Array:
        return _engine.sum_by(path, len(above), np.ascontiguousarray(values))

    return _PathTimes(
        above=above,
        name=code[example],
        names=names,
        kind=kind[example],
        device_type=device_type[example],
        count=np.bincount(path, minlength=len(above)),
        total=summed(np.where(outermost == 1, lasting, 0)),
        own=summed(own),
        device=_engine.subtree_sums(summed(np.where(on_device, lasting, 0)), above),
        recursive=summed((outermost == 0).astype(np.int64)) > 0,
    )


def times_of(table: EventTable, threads: Array, parent: Array, until: int) -> tuple[Array, Array]:
    """(duration, self time) of each row. What has no end lasts as long as what is around it, at most to `until`."""
    start, end = table.columns["start"], table.column("end")
    open_ = np.flatnonzero(end == NO_END)
    if len(open_):
        ended = (end != NO_END).view(np.uint8)
        around = _engine.nearest_above(parent, ended, open_)
        end = end.copy()
        end[open_] = np.where(around == NO_ROW, until, np.minimum(end[around], until))
    lasting = durations(EventTable({"start": start, "end": end}, {}))
    # Device work, and backward ops on a thread of their own, run beside their parents.
    inner = np.flatnonzero((parent != NO_ROW) & rules.is_cpu(table.column("device_type")))
    inner = inner[threads[inner] == threads[parent[inner]]]
    outer = parent[inner]
    within = np.maximum(np.minimum(start[inner] + lasting[inner], start[outer] + lasting[outer]) - start[inner], 0)
    return lasting, lasting - _engine.sum_by(outer, len(start), within)

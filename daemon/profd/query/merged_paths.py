"""All calls of one path together, of one table or of several after each other."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.errors import Exhausted
from profd.events import NO_CODE, NO_END, NO_ROW, DeviceType, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.limits import QUERY_ROWS_MAX
from profd.query import rules
from profd.query.view import durations

_KINDS: Final = [kind.label for kind in Kind]
_DEVICES: Final = {int(device): device.label for device in DeviceType}
_OF_PATHS: Final = ("above", "name", "kind", "device_type")


def words_of(name: str, kind: int, device_type: int) -> dict[str, str]:
    """What a path is, as docs/json.md has it. A damaged file may name any kind and type."""
    return {
        "name": name,
        "kind": _KINDS[min(kind, len(_KINDS) - 1)],
        "device_type": _DEVICES.get(device_type, "other"),
    }


@dataclass(frozen=True, slots=True)
class PathTimes:
    """A column for each number of a path, those above a path before it; ns."""

    above: Array  # path of the caller, or NO_ROW
    name: Array  # index of `names`, or NO_CODE
    kind: Array
    device_type: Array
    count: Array
    total: Array  # of outermost calls
    own: Array
    launched: Array  # work on devices that is this path itself
    inner: Array  # calls that lie within another one of the path

    def __len__(self) -> int:
        return len(self.above)

    @classmethod
    def of(
        cls, table: EventTable, threads: Array, until: int, counted: Array | None = None
    ) -> tuple[PathTimes, list[str]]:
        """(those of the calls of a table, the names). `counted`: rows that count; others are above these. None: all."""
        names, code = rules.shown_names(rules.names_of(table), table.column("name"))
        kind, device_type = table.column("kind"), table.column("device_type")
        parent = np.ascontiguousarray(table.column("parent"))
        key, first = _engine.group_rows([column.astype(np.int64) for column in (code, kind, device_type)])
        folds = rules.is_kind(kind[first], *rules.FUNCTIONS)
        path, above, example, outermost = _engine.call_paths(key.astype(np.int32), folds.view(np.uint8), parent)
        lasting, own = times_of(table, threads, parent, until, counted)
        on_device = ~rules.is_cpu(device_type)
        counts = np.ones(len(table), dtype=bool) if counted is None else counted

        def summed(values: Array) -> Array:
            return _engine.sum_by(path, len(above), np.ascontiguousarray(values))

        found = cls(
            above=above,
            name=code[example],
            kind=kind[example],
            device_type=device_type[example],
            count=summed(counts.astype(np.int64)),
            total=summed(np.where(counts & (outermost == 1), lasting, 0)),
            own=summed(own),
            launched=summed(np.where(counts & on_device, lasting, 0)),
            inner=summed((counts & (outermost == 0)).astype(np.int64)),
        )
        return found, names

    @property
    def device(self) -> Array:
        """Work on devices that it or what is below it launched."""
        return _engine.subtree_sums(self.launched, self.above)


class PathsOfStretches:
    """The paths of all tables so far. Exhausted where there are too many paths for a worker."""

    def __init__(self) -> None:
        self._names = Dictionary()
        self._found: PathTimes | None = None

    def add(self, paths: PathTimes, names: list[str]) -> None:
        """The next ones, whose names are these."""
        codes, place = np.unique(paths.name, return_inverse=True)
        known = [self._names.code(names[code]) if code >= 0 else NO_CODE for code in codes.tolist()]
        columns = {field.name: getattr(paths, field.name) for field in fields(PathTimes)}
        columns["name"] = np.array(known, dtype=np.int32)[place]
        if self._found is not None:
            shift = len(self._found)
            columns["above"] = np.where(paths.above == NO_ROW, NO_ROW, paths.above + shift)
            columns = {name: np.concatenate([getattr(self._found, name), more]) for name, more in columns.items()}
            columns = _together(columns)
        self._found = PathTimes(**columns)
        if len(self._found) > QUERY_ROWS_MAX:
            raise Exhausted(f"the calls of this trace have more than {QUERY_ROWS_MAX:,} paths: narrow it with --window")

    def together(self) -> tuple[PathTimes, list[str]]:
        """(all of them, the names)."""
        none = np.empty(0, dtype=np.int64)
        return self._found or PathTimes(**{field.name: none for field in fields(PathTimes)}), self._names.values


def _together(columns: dict[str, Array]) -> dict[str, Array]:
    """Paths that are the same as one. They were folded before: no more is."""
    keys = [columns[name].astype(np.int64) for name in ("name", "kind", "device_type")]
    key, first = _engine.group_rows(keys)
    folds = np.zeros(len(first), dtype=np.uint8)
    path, above, example, _ = _engine.call_paths(key.astype(np.int32), folds, np.ascontiguousarray(columns["above"]))
    sums = {
        name: _engine.sum_by(path, len(above), np.ascontiguousarray(values))
        for name, values in columns.items()
        if name not in _OF_PATHS
    }
    return {"above": above, **{name: columns[name][example] for name in _OF_PATHS[1:]}, **sums}


def times_of(
    table: EventTable, threads: Array, parent: Array, until: int, counted: Array | None = None
) -> tuple[Array, Array]:
    """(duration, self time) of each row. What has no end lasts as long as what is around it, at most to `until`.

    `counted`: rows that count, None: all. The self time of others is what the counted ones below them take of it.
    """
    start, end = table.columns["start"], table.column("end")
    open_ = np.flatnonzero(end == NO_END)
    if len(open_):
        ended = (end != NO_END).view(np.uint8)
        around = _engine.nearest_above(parent, ended, open_)
        end = end.copy()
        end[open_] = np.where(around == NO_ROW, until, np.minimum(end[around], until))
    lasting = durations(EventTable({"start": start, "end": end}, {}))
    # Device work, and backward ops on a thread of their own, run beside their parents.
    inside = (parent != NO_ROW) & rules.is_cpu(table.column("device_type"))
    inner = np.flatnonzero(inside if counted is None else inside & counted)
    inner = inner[threads[inner] == threads[parent[inner]]]
    outer = parent[inner]
    within = np.maximum(np.minimum(start[inner] + lasting[inner], start[outer] + lasting[outer]) - start[inner], 0)
    own = lasting if counted is None else np.where(counted, lasting, 0)
    return lasting, own - _engine.sum_by(outer, len(start), within)


def as_json(paths: PathTimes, names: list[str], shown: list[tuple[int, int]], window: int) -> list[dict[str, Any]]:
    """The nodes of docs/json.md, of these (path, depth)."""
    numbers = np.array([number for number, _ in shown], dtype=np.int64)
    columns = (
        paths.name,
        paths.kind,
        paths.device_type,
        paths.count,
        paths.total,
        paths.own,
        paths.device,
        paths.inner,
    )
    rows = zip(shown, *(column[numbers].tolist() for column in columns), strict=True)
    return [
        {
            "depth": depth,
            **words_of(names[code] if code >= 0 else "", kind, device_type),
            "count": count,
            "total_ns": total,
            "self_ns": own,
            "device_total_ns": device,
            "share": round(total / window, 6) if window else None,
            "recursive": inner > 0,
        }
        for (_, depth), code, kind, device_type, count, total, own, device, inner in rows
    ]

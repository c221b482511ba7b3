"""The collectives that one rank recorded: kernels of NCCL, or ranges of gloo's threads, and what is known of each."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from profd.answers.calls import joined
from profd.answers.ranks import names
from profd.answers.ranks.numbered import Numbered, Rows, numbered, when_called
from profd.answers.spans import Spans
from profd.events import NO_CODE, NO_END, NO_ROW, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.view import durations
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader

COLLECTIVES_MAX: Final = 200_000  # of one rank that are looked at: the first ones
_NAME_CHARS: Final = 100  # of a group and its ranks, and of a size
_KEYS: Final = (
    *("Collective name", "Process Group Name", "Process Group Ranks", "Seq", "In msg nelems", "Out msg nelems"),
    "dtype",
)
_COLUMNS: Final = ("name", "kind", "start", "end", "device_type", "thread", "device", "stream", "linked", "inputs")
Said = dict[str, Any]  # the arguments of a row


@dataclass(frozen=True, slots=True)
class Recorded:
    """Collectives of one rank whose end was recorded, in start order. Times in ns of its clock."""

    start: Array
    end: Array
    device: Array  # as this rank numbers them
    stream: Array
    op: list[str]  # of names.OPS; empty: not known
    group: list[str]  # as the process calls it; empty: not recorded
    size: list[str]  # of what is sent, as far as it was recorded: equal on all ranks; empty: not recorded
    bytes: Array  # of the full buffer; 0: not recorded
    of_input: Array  # whether these are of the input alone, which is a part of the buffer where ranks gather
    sequence: Array  # within the group; -1: not recorded
    unnumbered: str  # why no row of gloo has a group and a number; else empty
    on_device: bool
    left_out: int  # behind the first COLLECTIVES_MAX
    operators: Spans  # when an operator that is no collective ran on the host

    def __len__(self) -> int:
        return len(self.start)

    @property
    def spans(self) -> Spans:
        """When at least one of them was on."""
        return Spans.union(self.start, self.end)


def numbered_alike(ranks: Sequence[Recorded]) -> list[Recorded]:
    """Numbers of gloo's collectives that only some of the ranks have are of no use: none has any then."""
    if not any(one.unnumbered for one in ranks):
        return list(ranks)
    return [one if one.on_device or not len(one) else _without_numbers(one) for one in ranks]


def _without_numbers(one: Recorded) -> Recorded:
    return replace(one, group=[""] * len(one), sequence=np.full(len(one), -1, dtype=np.int64))


def recorded(reader: TraceReader) -> Recorded:
    """Of one trace, a segment at a time."""
    gathered = _Gathered(remembered=bool(reader.meta.remembered.calls))
    for table in reader.iterate(_COLUMNS, args=_KEYS):
        gathered.add(table)
    return gathered.recorded(reader)


class _Gathered:
    def __init__(self, *, remembered: bool) -> None:
        """`remembered`: a flight recorder says something of gloo's rows, to which ranges of their callers lead."""
        self._remembered = remembered
        self._kernel = rules.Named(names.is_kernel)
        self._host = rules.Named(names.is_on_host)
        self._call = rules.Named(names.is_call)
        self._caller = rules.Named(lambda name: name.startswith("c10d::"))
        self._operator = rules.Named(lambda name: "::" in name and not name.startswith("c10d::"))
        self._kernels = _Rows()
        self._ranges = _Rows()
        self._calls = _Rows()
        self._callers = _Rows()
        self._operators: list[tuple[Array, ...]] = []

    def add(self, table: EventTable) -> None:
        kinds, on_host = table.column("kind"), rules.is_cpu(table.column("device_type"))
        ended = table.column("end") != NO_END
        self._kernels.add(table, self._kernel.of(table) & (kinds == Kind.KERNEL) & ended)
        self._ranges.add(table, self._host.of(table) & on_host)
        self._calls.add(table, self._call.of(table) & on_host)
        if self._remembered:
            self._callers.add(table, self._caller.of(table) & on_host)
        rows = np.flatnonzero(self._operator.of(table) & (kinds == Kind.CPU_OP) & on_host)
        start = table.columns["start"][rows]
        spans = Spans.union(start, start + durations(table)[rows])
        self._operators.append((spans.start, spans.end))

    def recorded(self, reader: TraceReader) -> Recorded:
        operators = Spans.union(*joined(self._operators, 2))
        found = self._kernels if self._kernels.count else self._ranges
        on_device = found is self._kernels and found.count > 0
        start, end, thread, device, stream, linked, ended = found.columns()
        said = found.said
        if on_device:
            said = _with_calls(reader, said, linked, self._calls)
        known = [_Known.of(one) for one in said]
        left_out = max(found.count - COLLECTIVES_MAX, 0)
        sequence = np.array([one.sequence for one in known], dtype=np.int64)
        numbers = Numbered([one.group for one in known], sequence)
        if not on_device and (sequence < 0).all():
            numbers = self._numbered(reader.meta, start, thread, known)
        kept = np.flatnonzero(ended)  # what the window cut says neither how long it took nor who waited
        known = [known[at] for at in kept.tolist()]
        return Recorded(
            start[kept],
            end[kept],
            device[kept],
            stream[kept],
            [one.op for one in known],
            [numbers.group[at] for at in kept.tolist()],
            [one.size for one in known],
            np.array([one.bytes for one in known], dtype=np.int64),
            np.array([one.of_input for one in known], dtype=bool),
            numbers.sequence[kept],
            numbers.why_not if len(known) else "",
            on_device,
            left_out,
            operators,
        )

    def _numbered(self, meta: TraceMeta, start: Array, thread: Array, known: list[_Known]) -> Numbered:
        """What torch's flight recorder says of gloo's rows."""
        kinds = [(one.op, one.elements) for one in known]
        calls = [(one.op, one.elements) for one in map(_Known.of, self._callers.said)]
        called = when_called(start, kinds, self._callers.columns()[0], calls)
        rows = Rows(start, called, thread, [op for op, _ in kinds], [elements for _, elements in kinds])
        whole = self._ranges.count <= COLLECTIVES_MAX and not meta.lost
        return numbered(rows, meta.remembered.calls, whole=whole)


class _Rows:
    """Rows of one sort with their names and arguments; no more than are looked at."""

    def __init__(self) -> None:
        self._parts: list[tuple[Array, ...]] = []
        self.said: list[Said] = []
        self.count = 0

    def add(self, table: EventTable, flags: Array) -> None:
        rows = np.flatnonzero(flags)
        self.count += len(rows)
        rows = rows[: max(COLLECTIVES_MAX - len(self.said), 0)]
        if not len(rows):
            return
        start, values = table.columns["start"][rows], rules.names_of(table)
        rest = (table.column(name)[rows] for name in ("thread", "device", "stream", "linked"))
        ended = table.column("end")[rows] != NO_END
        self._parts.append((start, start + durations(table)[rows], *rest, ended))
        said: list[Said] = [{"name": values[code]} for code in table.column("name")[rows].tolist()]
        for one, code in zip(said, table.column("inputs")[rows].tolist(), strict=True):
            if code != NO_CODE:
                one["inputs"] = table.dictionaries["inputs"].values[code]
        for (key, kind), arg in table.args.items():
            place = np.searchsorted(arg.rows, rows)
            there = np.flatnonzero(place < len(arg.rows))
            there = there[arg.rows[place[there]] == rows[there]] if kind != "ints" else there[:0]
            for at, value in zip(there.tolist(), arg.values[place[there]].tolist(), strict=True):
                said[at][key] = value if arg.dictionary is None else arg.dictionary.values[value]
        self.said += said

    def columns(self) -> tuple[Array, ...]:
        """start, end, thread, device, stream, linked, and whether the end was recorded."""
        return joined(self._parts, 7)


def _with_calls(reader: TraceReader, said: list[Said], linked: Array, calls: _Rows) -> list[Said]:
    """What the ranges around each launch say, and over it what the kernel says itself."""
    start, end, thread, *_ = calls.columns()
    known = np.unique(linked[linked != NO_ROW])
    if not len(start) or not len(known):
        return said
    launches = reader.rows(known, ("start", "thread"), args=False)
    at, on = launches.columns["start"], launches.column("thread")
    around: dict[int, Said] = {}
    for track in np.unique(on).tolist():
        mine = np.flatnonzero(thread == track)
        for launch in np.flatnonzero(on == track).tolist():
            # Ranges of one call nest two or three deep: those that began last.
            last = int(np.searchsorted(start[mine], at[launch], side="right"))
            for place in mine[max(last - 3, 0) : last].tolist():
                if at[launch] < end[place]:
                    around.setdefault(int(known[launch]), {}).update(calls.said[place])
    return [
        {**around.get(row, {}), "kernel": one["name"], **_more(one)}
        for row, one in zip(linked.tolist(), said, strict=True)
    ]


def _more(said: Said) -> Said:
    return {key: value for key, value in said.items() if key != "name"}


@dataclass(frozen=True, slots=True)
class _Known:
    op: str
    group: str
    size: str
    elements: int  # 0: not recorded
    bytes: int
    of_input: bool
    sequence: int

    @classmethod
    def of(cls, said: Said) -> _Known:
        """Of what was recorded with one; nothing of it is trusted to have the type that it should."""
        words = (str(said.get(key, "")) for key in ("Collective name", "name", "kernel"))
        op = next((found for found in map(names.op_of, words) if found), "")
        named = (str(said.get(f"Process Group {key}", ""))[:_NAME_CHARS] for key in ("Name", "Ranks"))
        group = " ".join(filter(None, named))
        before, after = (_number(said.get(key)) for key in ("In msg nelems", "Out msg nelems"))
        dtype = str(said.get("dtype", ""))
        if before or after:
            elements, size = max(before, after), f"{before} {after} {dtype}"
        else:
            elements, dtype, size = _of_shapes(str(said.get("inputs", "{}")), dtype)
        # Where both sides were recorded the full buffer is the larger one.
        alone = not (before or after)
        size = "" if op in names.UNEVEN else size
        return cls(op, group, size, elements, elements * names.bytes_of(dtype), alone, _number(said.get("Seq"), -1))


@functools.lru_cache(4096)
def _of_shapes(text: str, dtype: str) -> tuple[int, str, str]:
    """(elements, their type, the size as text) of the inputs of a range, where shapes were recorded."""
    try:
        inputs = json.loads(text)
        shapes, types = inputs["Input Dims"], inputs.get("Input type", [])
        first = next(shape for shape in shapes if shape)
        flat = [each for each in (first if isinstance(first[0], list) else [first]) if each]
        elements = sum(int(np.prod([int(side) for side in each], dtype=np.float64)) for each in flat)
        kind = dtype or str(next((one for one in types if one and one != "Scalar"), ""))
    except (ValueError, TypeError, KeyError, StopIteration, IndexError, OverflowError, RecursionError):
        return 0, dtype, ""
    return min(max(elements, 0), 1 << 50), kind, json.dumps(first)[:_NAME_CHARS]


def _number(value: Any, without: int = 0) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else without

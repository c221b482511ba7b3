"""A stored trace as Arrow tables: what `profctl sql` and `Trace.to_arrow` see.

Points in time are Unix ns, everything else that ends in `_ns` is a duration.
Absent is null. Kinds and device types are words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from profd import _engine
from profd.events import COLUMNS, NO_END, NO_ROW, DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.model.text import encodable
from profd.query.arg_values import NO_ARGS, ArgColumns
from profd.query.counted import backward_links
from profd.query.part import numbers_of, places_of
from profd.query.view import durations
from profd.query.whole import check_size
from profd.segments.columns import encode_column
from profd.segments.reader import TraceReader, Window

# Of the columns of a trace that are called otherwise here: END is a word of SQL's.
RENAMED: Final = {"start": "start_ns", "end": "end_ns", "self_time": "self_ns"}
_SOURCES: Final = {shown: name for name, shown in RENAMED.items()}
_WORDS: Final[dict[str, list[str]]] = {
    "kind": [kind.label for kind in Kind],
    "device_type": [device.label for device in DeviceType],
}
_PHASES: Final = [chr(code) for code in range(128)]
_CODED: Final = pa.dictionary(pa.int32(), pa.string())


def arrow_type(name: str) -> pa.DataType:
    """Of a column of a trace, by its name there, or of one that is made: those are numbers."""
    if _is_coded(name):
        return _CODED
    return pa.from_numpy_dtype(COLUMNS[name].dtype) if name in COLUMNS else pa.int64()


def _is_coded(name: str) -> bool:
    return name in COLUMNS and (COLUMNS[name].dictionary is not None or name in _WORDS or name == "phase")


# Columns of `events` that are none of the trace, and what they are made from.
_MADE: Final = {"row": (), "duration_ns": ("end",), "op": ("parent", "kind")}
EVENTS_SCHEMA: Final = pa.schema(
    [
        ("row", pa.int64()),
        *((RENAMED.get(name, name), arrow_type(name)) for name in COLUMNS),
        ("duration_ns", pa.int64()),
        ("op", pa.int64()),
    ]
)


def events_arrow(
    reader: TraceReader,
    wanted: Collection[str] = EVENTS_SCHEMA.names,
    window: Window | None = None,
    args: ArgColumns = NO_ARGS,
) -> pa.Table:
    """One row per event in start order: `row`, the columns of the trace, `duration_ns`, `op`; or some of these.

    `wanted`: names of EVENTS_SCHEMA. `window`: only events with a part in it, as `TraceReader.iterate` has them; they
    are whole. `args`: columns behind these. A column that no event has is there and null. Exhausted for more than can
    be held at once.
    """
    check_size(reader.rows_at_most(window), "ask with --step or --window")
    tables = list(_tables(reader, wanted, window, args))
    schema = events_schema(wanted, args)
    return pa.table([_whole(reader, field, [table[field.name] for table in tables]) for field in schema], schema=schema)


def events_schema(wanted: Collection[str], args: ArgColumns = NO_ARGS) -> pa.Schema:
    """Of these columns."""
    return pa.schema([*(field for field in EVENTS_SCHEMA if field.name in wanted), *args.schema])


class Stream:
    """A table, read from its beginning whenever it is asked for (Arrow's PyCapsule interface), and held by nobody."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._schema, self._batches = schema, batches

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__(requested_schema)


def events_stream(
    reader: TraceReader, wanted: Collection[str], window: Window | None = None, args: ArgColumns = NO_ARGS
) -> Stream:
    """As `events_arrow`, of any number of events."""
    schema = events_schema(wanted, args)

    def batches() -> Iterator[pa.RecordBatch]:
        for table in _tables(reader, wanted, window, args):
            chunks = [_whole(reader, field, [table[field.name]]).chunk(0) for field in schema]
            yield pa.RecordBatch.from_arrays(chunks, schema=schema)

    return Stream(schema, batches)


def _tables(
    reader: TraceReader, wanted: Collection[str], window: Window | None, args: ArgColumns
) -> Iterator[dict[str, pa.Array]]:
    """A segment at a time, words as codes."""
    made = {source for name, sources in _MADE.items() if name in wanted for source in sources}
    stored = [name for name in COLUMNS if RENAMED.get(name, name) in wanted or name in made]
    for table in reader.iterate(stored, args=args.read or False, window=window):
        row = numbers_of(table)
        found = {RENAMED.get(name, name): _column(table, name) for name in stored}
        found |= args.columns(table)
        found["row"] = pa.array(row)
        if "duration_ns" in wanted:
            found["duration_ns"] = pa.array(durations(table), mask=table.column("end") == NO_END)
        if "op" in wanted:
            found["op"] = _operators(reader, row, table)
        yield found


def _operators(reader: TraceReader, row: Array, table: EventTable) -> pa.Array:
    """Row of the operator that each row is or lies below: what the reference inherits as a correlation id."""
    rows, parents, ops = [row], [table.column("parent")], [table.column("kind") == Kind.CPU_OP]
    known = row
    while len(missing := _missing(parents[-1], known, len(reader))):
        above = reader.rows(missing, ("parent", "kind"), args=False)
        rows.append(missing)
        parents.append(above.column("parent"))
        ops.append(above.column("kind") == Kind.CPU_OP)
        known = np.union1d(known, missing)
    numbers, parent, is_op = map(np.concatenate, (rows, parents, ops))
    order = np.argsort(numbers, kind="stable")
    numbers, is_op = numbers[order], is_op[order]
    places = places_of(numbers, parent[order])
    nearest = _engine.nearest_above(places, is_op.view(np.uint8), np.arange(len(numbers), dtype=np.int64))
    around = np.where(nearest == NO_ROW, NO_ROW, numbers[nearest])
    op = np.where(is_op, numbers, around)[np.searchsorted(numbers, row)]
    return pa.array(op, mask=op == NO_ROW)


def _missing(parents: Array, known: Array, rows: int) -> Array:
    """The parents, of so many rows, that are not known."""
    wanted = np.unique(parents)
    wanted = wanted[(wanted >= 0) & (wanted < rows)]
    return np.setdiff1d(wanted, known, assume_unique=True)


def _column(table: EventTable, name: str) -> pa.Array:
    """Numbers as they are, words as codes: their dictionaries grow until the last segment is read."""
    spec = COLUMNS[name]
    if name not in table.columns:
        return pa.nulls(len(table), pa.int32() if _is_coded(name) else pa.from_numpy_dtype(spec.dtype))
    values = table.columns[name]
    if spec.dictionary is not None:
        return pa.array(values, pa.int32(), mask=values < 0)
    if name == "phase":
        return pa.array(values.astype(np.int32), mask=(values == 0) | (values >= len(_PHASES)))
    if name in _WORDS:
        return pa.array(np.minimum(values, len(_WORDS[name]) - 1).astype(np.int32))
    return encode_column(spec, values, {}, pa.from_numpy_dtype(spec.dtype))


def _whole(reader: TraceReader, field: pa.Field, parts: list[Any]) -> pa.ChunkedArray:
    if field.type != _CODED:
        return pa.chunked_array(parts, field.type)
    words = _words_of(reader, _SOURCES.get(field.name, field.name))
    coded = [pa.DictionaryArray.from_arrays(part, words, safe=False) for part in parts]
    return pa.chunked_array(coded, field.type)


def _words_of(reader: TraceReader, name: str) -> pa.Array:
    if name == "phase":
        return pa.array(_PHASES)
    if name in _WORDS:
        return pa.array(_WORDS[name])
    return _texts(reader, COLUMNS[name].dictionary or "")


def _texts(reader: TraceReader, dictionary: str) -> pa.Array:
    """The strings of a dictionary; those with lone surrogates made encodable."""
    known = reader.dictionaries.get(dictionary)
    values = known.values if known is not None else []
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        return pa.array([encodable(value) for value in values], pa.string())


def flows_arrow(reader: TraceReader) -> pa.Table:
    """One row per flow record: `id` (JSON), `category`, `name`, `phase` (s, t or f), `enclosing`, `thread`,
    `time_ns`, `row` of the event it is bound to.
    """
    flows = reader.flows()

    def coded(codes: Array, dictionary: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int32(), mask=codes < 0), _texts(reader, dictionary), safe=False
        )

    phase = np.minimum(flows.phase, len(_PHASES) - 1).astype(np.int32)
    return pa.table(
        {
            "id": coded(flows.id, "flow_id"),
            "category": coded(flows.category, "cat"),
            "name": coded(flows.name, "name"),
            "phase": pa.DictionaryArray.from_arrays(pa.array(phase), pa.array(_PHASES)),
            "enclosing": pa.array(flows.enclosing),
            "thread": pa.array(flows.thread, mask=flows.thread < 0),
            "time_ns": pa.array(flows.time),
            "row": pa.array(flows.row, mask=flows.row < 0),
        }
    )


def backward_arrow(reader: TraceReader) -> pa.Table:
    """One row per backward op: its `row`, and `forward_row`, null where the forward op is not in the trace.

    Exhausted where too many of its events are of the passes of autograd.
    """
    row, links = backward_links(reader)
    backward = np.flatnonzero(links.backward)
    forward = links.forward_row[backward]
    unknown = forward < 0
    told = row[np.where(unknown, 0, forward)]
    return pa.table({"row": pa.array(row[backward]), "forward_row": pa.array(told, mask=unknown)})


def threads_arrow(reader: TraceReader) -> pa.Table:
    """One row per thread or stream: `thread` (as in events), `process`, `id` as recorded, `name`."""
    tracks = reader.tracks.threads
    process = [track.get("process") for track in tracks]
    return _tracks("thread", tracks, {"process": pa.array(process, pa.int32())})


def processes_arrow(reader: TraceReader) -> pa.Table:
    """One row per process: `process` (as in events), `id` as recorded, `name`, `labels`."""
    tracks = reader.tracks.processes
    return _tracks("process", tracks, {"labels": _strings(track.get("labels") for track in tracks)})


def _tracks(number: str, tracks: list[dict[str, Any]], more: dict[str, pa.Array]) -> pa.Table:
    return pa.table(
        {
            number: pa.array(range(len(tracks)), pa.int32()),
            "id": _strings(track.get("id") for track in tracks),
            "name": _strings(track.get("name") for track in tracks),
            **more,
        }
    )


def _strings(values: Any) -> pa.Array:
    return pa.array([None if value is None else _plain(value) for value in values], pa.string())


def _plain(value: Any) -> str:
    return encodable(value if isinstance(value, str) else json.dumps(value))


Make = Callable[[TraceReader], pa.Table]
# What a question may name besides events, and how it is made.
TABLES: Final[dict[str, Make]] = {
    "flows": flows_arrow,
    "backward": backward_arrow,
    "threads": threads_arrow,
    "processes": processes_arrow,
}

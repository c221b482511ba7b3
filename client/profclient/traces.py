"""Reading and keeping traces: one interface, with a daemon behind it or a store directory.

Traces are dicts with the fields of `profproto/v1/trace.proto`; absent is None.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from profproto.v1 import trace_pb2

from profclient.connection import LONG_TIMEOUT_SECONDS, Daemon
from profclient.errors import UsageError

IMPORT_CHUNK_BYTES = 512 * 1024


class Traces(Protocol):
    """What the reading commands need. Every id may be a prefix; empty means the latest."""

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest traces first."""
        ...

    def get(self, trace: str) -> dict[str, Any]:
        """One trace. Raises NotFoundError."""
        ...

    def summary(self, trace: str) -> dict[str, Any]:
        """The summary (docs/json.md) with the trace under "trace"."""
        ...

    def top(self, trace: str, **query: Any) -> list[dict[str, Any]]:
        """Rows of key averages; `query` as the fields of KeyAveragesRequest."""
        ...

    def tree(self, trace: str, max_depth: int, from_row: int | None) -> Iterator[bytes]:
        """JSON lines in pieces."""
        ...

    def export(self, trace: str, **query: Any) -> Iterator[bytes]:
        """The exported bytes in pieces; `query` as the fields of ExportRequest."""
        ...

    def steps(self, trace: str) -> dict[str, Any]:
        """The steps one by one (docs/json.md)."""
        ...

    def gpu(self, trace: str) -> dict[str, Any]:
        """What the devices did: streams, copies, launches (docs/json.md)."""
        ...

    def timeline(self, trace: str, lines: Sequence[str], rules: str = "") -> Iterator[bytes]:
        """Derived lines of these kinds, or of all, as JSON lines (docs/json.md) in pieces."""
        ...

    def diff(self, trace: str, other: str, by: str) -> dict[str, Any]:
        """What became of `trace` in `other` (docs/json.md), by name, path or module."""
        ...

    def sql(self, trace: str, text: str, limit: int) -> dict[str, Any]:
        """The answer to a question in SQL (docs/json.md); limit 0: as many rows as are allowed."""
        ...

    def import_file(self, path: Path, dialect: str = "") -> dict[str, Any]:
        """Store a file from elsewhere, in a dialect of Chrome's format; its trace."""
        ...

    def pin(self, trace: str, pinned: bool) -> dict[str, Any]:
        """Keep it, or no longer."""
        ...

    def share(self, trace: str, users: Iterable[str]) -> dict[str, Any]:
        """Readers beside its owner; none of them takes all back."""
        ...

    def delete(self, trace: str) -> str:
        """Delete it; its id."""
        ...

    def evictions(self, size: int) -> dict[str, Any]:
        """What would go were a trace of this many bytes stored now (docs/json.md); nothing does."""
        ...


def trace_dict(trace: trace_pb2.Trace) -> dict[str, Any]:
    """A message as a dict; absent is None."""
    lost = [{"stage": loss.stage, "reason": loss.reason, "count": loss.count} for loss in trace.lost]
    return {**_fields(trace), "shared_with": list(trace.shared_with), "lost": lost}


def _fields(message: Any) -> dict[str, Any]:
    """By name; optional ones that are absent are None."""
    return {
        field.name: getattr(message, field.name) if not field.has_presence or message.HasField(field.name) else None
        for field in message.DESCRIPTOR.fields
    }


class RemoteTraces:
    """Traces of a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._stub = daemon.traces

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest traces first."""
        answer = self._daemon.call(self._stub.ListTraces, trace_pb2.ListTracesRequest(limit=limit))
        return [trace_dict(trace) for trace in answer.traces]

    def get(self, trace: str) -> dict[str, Any]:
        """One trace. Raises NotFoundError."""
        return trace_dict(self._daemon.call(self._stub.GetTrace, trace_pb2.TraceRef(id=trace)))

    def summary(self, trace: str) -> dict[str, Any]:
        """The summary with the trace under "trace"."""
        answer = self._call(self._stub.Summary, trace_pb2.TraceRef(id=trace))
        return {**json.loads(answer.summary_json), "trace": trace_dict(answer.trace)}

    def top(self, trace: str, **query: Any) -> list[dict[str, Any]]:
        """Rows of key averages."""
        answer = self._call(self._stub.KeyAverages, trace_pb2.KeyAveragesRequest(id=trace, **query))
        return [_row(row) for row in answer.rows]

    def tree(self, trace: str, max_depth: int, from_row: int | None) -> Iterator[bytes]:
        """JSON lines in pieces."""
        request = trace_pb2.TreeRequest(id=trace, max_depth=max_depth, from_row=from_row)
        for chunk in self._daemon.stream(self._stub.Tree, request):
            yield chunk.data

    def export(self, trace: str, **query: Any) -> Iterator[bytes]:
        """The exported bytes in pieces."""
        for chunk in self._daemon.stream(self._stub.Export, trace_pb2.ExportRequest(id=trace, **query)):
            yield chunk.data

    def steps(self, trace: str) -> dict[str, Any]:
        """The steps one by one."""
        return self._json(self._stub.Steps, trace_pb2.TraceRef(id=trace))

    def gpu(self, trace: str) -> dict[str, Any]:
        """What the devices did."""
        return self._json(self._stub.Gpu, trace_pb2.TraceRef(id=trace))

    def timeline(self, trace: str, lines: Sequence[str], rules: str = "") -> Iterator[bytes]:
        """Derived lines as JSON lines in pieces."""
        request = trace_pb2.TimelineRequest(id=trace, lines=lines, rules=rules)
        for chunk in self._daemon.stream(self._stub.Timeline, request):
            yield chunk.data

    def diff(self, trace: str, other: str, by: str) -> dict[str, Any]:
        """What became of `trace` in `other`."""
        return self._json(self._stub.Diff, trace_pb2.DiffRequest(id=trace, other=other, by=by))

    def sql(self, trace: str, text: str, limit: int) -> dict[str, Any]:
        """The answer to a question in SQL."""
        return self._json(self._stub.Sql, trace_pb2.SqlRequest(id=trace, sql=text, limit=limit))

    def import_file(self, path: Path, dialect: str = "") -> dict[str, Any]:
        """Store a file from elsewhere. Raises UsageError where it cannot be read here."""
        return trace_dict(self._call(self._stub.Import, _pieces(path, dialect)).trace)

    def pin(self, trace: str, pinned: bool) -> dict[str, Any]:
        """Keep it, or no longer."""
        request = trace_pb2.PinTraceRequest(id=trace, pinned=pinned)
        return trace_dict(self._daemon.call(self._stub.PinTrace, request))

    def share(self, trace: str, users: Iterable[str]) -> dict[str, Any]:
        """Readers beside its owner; none of them takes all back."""
        request = trace_pb2.ShareTraceRequest(id=trace)
        getattr(request, "with").extend(users)  # the field has a keyword's name
        return trace_dict(self._daemon.call(self._stub.ShareTrace, request))

    def delete(self, trace: str) -> str:
        """Delete it; its id."""
        return str(self._daemon.call(self._stub.DeleteTrace, trace_pb2.TraceRef(id=trace)).id)

    def evictions(self, size: int) -> dict[str, Any]:
        """What would go were a trace of this many bytes stored now."""
        answer = self._daemon.call(self._stub.Evictions, trace_pb2.EvictionsRequest(bytes=size))
        return {**_fields(answer), "traces": [trace_dict(trace) for trace in answer.traces]}

    def _json(self, method: Any, request: Any) -> dict[str, Any]:
        return dict(json.loads(b"".join(chunk.data for chunk in self._daemon.stream(method, request))))

    def _call(self, method: Any, request: Any) -> Any:
        return self._daemon.call(method, request, timeout=LONG_TIMEOUT_SECONDS)


def readable(path: Path) -> Path:
    """The path, if it is a file that can be read here. Raises UsageError."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory; name the trace files in it.")
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    return path


def _pieces(path: Path, dialect: str) -> Iterator[trace_pb2.ImportChunk]:
    with readable(path).open("rb") as file:
        yield trace_pb2.ImportChunk(filename=path.name, dialect=dialect)
        while data := file.read(IMPORT_CHUNK_BYTES):
            yield trace_pb2.ImportChunk(data=data)


def _row(row: trace_pb2.KeyAverage) -> dict[str, Any]:
    shapes = json.loads(row.input_shapes) if row.input_shapes else None
    return {**_fields(row), "input_shapes": shapes, "stack": list(row.stack) or None}

"""Reading and keeping traces: one interface, with a daemon behind it or a store directory.

Traces are dicts with the fields of `profproto/v1/trace.proto`; absent is None.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from profproto.v1 import query_pb2, trace_pb2

from profclient.connection import LONG_TIMEOUT_SECONDS, Daemon
from profclient.errors import UsageError

IMPORT_CHUNK_BYTES = 512 * 1024


class Answer:
    """The answer to a question, once: its pieces as they come, its lines, or its value. Each raises ClientError."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def lines(self) -> Iterator[bytes]:
        """The JSON lines, each whole."""
        rest = b""
        for piece in self._pieces:
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def value(self) -> Any:
        """The one JSON value."""
        return json.loads(b"".join(self._pieces))


_CAPTURE = re.compile(r"[cf][0-9a-f]{0,12}")
_OF_MANY_HOSTS = "f"


def is_capture(name: str) -> bool:
    """Whether a name is an id of a capture, or begins one: c… of one host, f… of many. Traces begin with a digit."""
    return _CAPTURE.fullmatch(name) is not None


def is_fleet(name: str) -> bool:
    """Whether a name is an id of a capture of many hosts, or begins one."""
    return is_capture(name) and name.startswith(_OF_MANY_HOSTS)


class Traces(Protocol):
    """The operations that reading commands need. Every id may be a prefix; empty means the latest trace."""

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest traces first."""
        ...

    def get(self, trace: str) -> dict[str, Any]:
        """One trace. Raises NotFoundError."""
        ...

    def ask(self, question: str, trace: str, **arguments: Any) -> Answer:
        """A question of docs/questions.md, with its arguments by name; None is as good as absent.

        `trace` may be a capture (`is_capture`), where the question can be asked of one.
        """
        ...

    def import_file(self, path: Path, dialect: str = "", capture: str = "") -> dict[str, Any]:
        """Store a file from elsewhere, in a dialect of Chrome's format; its trace.

        `capture`: "new" makes one that it is of, the id of such a one adds it to that.
        """
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
        """Traces that would go if a trace of this many bytes were stored now (docs/json.md); none does."""
        ...


def trace_dict(trace: trace_pb2.Trace) -> dict[str, Any]:
    """A message as a dict; absent is None."""
    lost = [{"stage": loss.stage, "reason": loss.reason, "count": loss.count} for loss in trace.lost]
    return {**_fields(trace), "shared_with": list(trace.shared_with), "lost": lost}


def _fields(message: Any) -> dict[str, Any]:
    """Fields by name; absent optional ones are None."""
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

    def ask(self, question: str, trace: str, **arguments: Any) -> Answer:
        """A question with its arguments by name. UsageError for a capture of many hosts: a daemon has one host's."""
        if is_fleet(trace):
            raise UsageError(
                f"{trace} is a capture of many hosts: bring it here with `profctl collect {trace} --to DIR`, and ask "
                f"`profctl --store DIR {question} {trace}`."
            )
        scope = query_pb2.Scope(capture=trace) if is_capture(trace) else query_pb2.Scope(trace=trace)
        request = query_pb2.QueryRequest(name=question, scope=scope)
        request.arguments.update({name: _sent(value) for name, value in arguments.items() if value is not None})
        return Answer(_about(self._daemon.stream(self._daemon.questions.Query, request), scope))

    def import_file(self, path: Path, dialect: str = "", capture: str = "") -> dict[str, Any]:
        """Store a file from elsewhere. Raises UsageError where it cannot be read here."""
        return trace_dict(self._call(self._stub.Import, _pieces(path, dialect, capture)).trace)

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
        """The traces that would go if one of this many bytes were stored now."""
        answer = self._daemon.call(self._stub.Evictions, trace_pb2.EvictionsRequest(bytes=size))
        return {**_fields(answer), "traces": [trace_dict(trace) for trace in answer.traces]}

    def _call(self, method: Any, request: Any) -> Any:
        return self._daemon.call(method, request, timeout=LONG_TIMEOUT_SECONDS)


def _about(parts: Iterable[query_pb2.QueryResponse], scope: query_pb2.Scope) -> Iterator[bytes]:
    """The data of an answer about what was asked: a daemon that knows no captures would answer about a trace."""
    for part in parts:
        if part.WhichOneof("part") == "data":
            yield part.data
        elif scope.capture and not part.header.capture:
            raise UsageError(
                "this daemon can be asked about traces only, not about a capture: name a trace, or upgrade it."
            )


def readable(path: Path) -> Path:
    """The path, if it is a file that can be read here. Raises UsageError."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{path} is a directory; name the trace files in it.")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):  # devices may have no end
            raise UsageError(f"{path} is no file.")
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    return path


def _pieces(path: Path, dialect: str, capture: str) -> Iterator[trace_pb2.ImportChunk]:
    with readable(path).open("rb") as file:
        yield trace_pb2.ImportChunk(filename=path.name, dialect=dialect, capture=capture)
        while data := file.read(IMPORT_CHUNK_BYTES):
            yield trace_pb2.ImportChunk(data=data)


def _sent(value: Any) -> Any:
    """An argument as `Query` takes it: its numbers are doubles, so integers go as text."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
